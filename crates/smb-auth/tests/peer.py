"""One end of a log-on by another implementation, driven over standard input and output.

Each line in is the other end's token in hexadecimal. Each line out is one of
    token HEX    send this to the other end
    key HEX      the exchange is complete, and this is the session key
    failed TEXT  it is not, and why

usage: peer.py pyspnego-client negotiate|ntlm USER PASSWORD
       peer.py pyspnego-server negotiate|ntlm          (accounts in the file that NTLM_USER_FILE names)
       peer.py impacket-client ntlm USER PASSWORD
"""

import sys


def say(kind, value):
    print(kind, value.hex() if isinstance(value, bytes) else value, flush=True)


def tokens():
    for line in sys.stdin:
        yield bytes.fromhex(line.strip())


def pyspnego(context, received):
    if context.usage == "initiate":
        say("token", context.step())
    while not context.complete:
        answer = context.step(next(received))
        if answer:
            say("token", answer)
    say("key", context.session_key)


def impacket(user, password, received):
    from impacket import ntlm

    domain, _, user = user.rpartition("\\")
    negotiate = ntlm.getNTLMSSPType1(workstation="PEER", domain=domain, signingRequired=True)
    say("token", negotiate.getData())
    answer, key = ntlm.getNTLMSSPType3(negotiate, next(received), user, password, domain)
    say("token", answer.getData())
    say("key", key)


def main(peer, protocol, *account):
    received = tokens()
    if peer == "impacket-client":
        impacket(*account, received)
        return
    import spnego

    # Pure Python on every machine: whether a system GSSAPI is installed must not matter.
    options = {"hostname": "server", "service": "cifs", "protocol": protocol}
    options["options"] = spnego.NegotiateOptions.use_negotiate if protocol == "negotiate" else spnego.NegotiateOptions.use_ntlm
    if peer == "pyspnego-client":
        context = spnego.client(*account, **options)
    else:
        context = spnego.server(**options)
    pyspnego(context, received)


try:
    main(*sys.argv[1:])
except Exception as error:  # whatever it is, the test wants to see it
    say("failed", f"{type(error).__name__}: {error}".replace("\n", " "))
