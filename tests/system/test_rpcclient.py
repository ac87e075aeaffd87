"""Samba's rpcclient and impacket: names of SIDs (lsarpc), accounts (samr), the server and its sessions (srvsvc)."""

import re

import pytest
from impacket.dcerpc.v5 import lsad, lsat, samr, srvs, transport
from impacket.dcerpc.v5.dtypes import MAXIMUM_ALLOWED, NULL

from harness.rpcclient import RpcClient


@pytest.fixture
def rpcclient(server):
    return RpcClient(server)


@pytest.fixture(scope="module")
def machine(server):
    """The machine's name and SID."""
    out = RpcClient(server)("lsaquery 5").out
    return re.search(r"Domain Name: (\S+)", out)[1], re.search(r"Domain Sid: (S-1-5-21-[-\d]+)", out)[1]


@pytest.fixture(scope="module")
def alice(server, machine):
    """The SID of the user."""
    sid = re.search(r"S-1-5-21-[-\d]+", RpcClient(server)(f"lookupnames {server.user}").out)[0]
    assert sid.startswith(machine[1] + "-")
    return sid


def bind(server, pipe, interface):
    """impacket's connection to a pipe."""
    smb = transport.SMBTransport(server.host, server.port, pipe, server.user, server.password)
    rpc = smb.get_dce_rpc()
    rpc.connect()
    rpc.bind(interface)
    return rpc


def test_domains(rpcclient):
    """MS-LSAD 3.1.4.4.4: a workgroup has no SID."""
    assert "Domain Sid: (NULL SID)" in rpcclient("lsaquery").out


@pytest.mark.smbd_differs("does not have LsarQueryInformationPolicy2")
def test_dns_domain(rpcclient):
    """MS-LSAD 3.1.4.4.3."""
    assert "Domain NetBios Name:" in rpcclient("lsaquery 12").out


def test_user_name(rpcclient, server, machine):
    """MS-LSAT 3.1.4.4."""
    assert f"Account Name: {server.user}, Authority Name: {machine[0]}" in rpcclient("getusername").out


@pytest.mark.smbd_differs("knows the user by its username map only")
def test_names_of_sids(rpcclient, server, machine, alice):
    """MS-LSAT 3.1.4.9 to 3.1.4.11."""
    out = rpcclient(f"lookupsids {alice} S-1-1-0 S-1-3-0 S-1-5-18 S-1-5-32-544 S-1-22-1-5 {machine[1]}-4444 S-1-5-21-9-9-9-9").out
    for line in (f"{alice} {machine[0]}\\{server.user} (1)", "S-1-1-0 \\Everyone (5)", "S-1-3-0 \\CREATOR OWNER (5)",
                 "S-1-5-18 NT AUTHORITY\\SYSTEM (5)", "S-1-5-32-544 BUILTIN\\Administrators (4)", "S-1-22-1-5 Unix User\\"):
        assert line in out
    assert re.search(rf"{machine[1]}-4444 {machine[0]}\\\S* \(8\)", out)
    assert "S-1-5-21-9-9-9-9 *unknown*\\*unknown* (8)" in out


@pytest.mark.smbd_differs("knows the user by its username map only")
def test_sids_of_names(rpcclient, server, machine, alice):
    """MS-LSAT 3.1.4.5 to 3.1.4.8: alone and with a domain, whatever the case; LsarLookupNames4 is a domain controller's."""
    out = rpcclient(f"lookupnames {server.user.upper()} everyone {machine[0]} nobody-at-all").out
    assert f"{alice} (User: 1)" in out and "S-1-1-0 (Well-known Group: 5)" in out and f"{machine[1]} (Domain: 3)" in out
    assert "(UNKNOWN: 8)" in out
    rpc = bind(server, r"\lsarpc", lsat.MSRPC_UUID_LSAT)
    policy = lsad.hLsarOpenPolicy2(rpc, MAXIMUM_ALLOWED | lsat.POLICY_LOOKUP_NAMES)["PolicyHandle"]
    names = [f"{machine[0].lower()}\\{server.user}", "BUILTIN\\Users", "NT AUTHORITY\\System"]
    for call in (lsat.hLsarLookupNames, lsat.hLsarLookupNames2, lsat.hLsarLookupNames3):
        answer = call(rpc, policy, names)
        assert answer["MappedCount"] == 3
    sids = [sid["Sid"].formatCanonical() for sid in answer["TranslatedSids"]["Sids"]]
    assert sids == [alice, "S-1-5-32-545", "S-1-5-18"]


def test_many_names(server):
    """Requests and answers of many fragments (C706 12.6.3.3)."""
    rpc = bind(server, r"\lsarpc", lsat.MSRPC_UUID_LSAT)
    policy = lsad.hLsarOpenPolicy2(rpc, MAXIMUM_ALLOWED | lsat.POLICY_LOOKUP_NAMES)["PolicyHandle"]
    sids = [f"S-1-22-1-{number}" for number in range(3000)] + ["S-1-1-0"]
    answer = lsat.hLsarLookupSids(rpc, policy, sids)
    names = [name["Name"] for name in answer["TranslatedNames"]["Names"]]
    assert len(names) == 3001 and names[-1] == "Everyone"


@pytest.mark.smbd_differs("has other BUILTIN groups and members, and shows users by its passdb")
def test_accounts(rpcclient, server, machine, alice):
    """MS-SAMR 3.1.5.2, 3.1.5.11."""
    rid = int(alice.rsplit("-", 1)[1])
    assert set(re.findall(r"name:\[(.*?)\]", rpcclient("enumdomains").out)) == {machine[0], "Builtin"}
    assert f"user:[{server.user}] rid:[{rid:#x}]" in rpcclient("enumdomusers").out
    assert "group:[None] rid:[0x201]" in rpcclient("enumdomgroups").out
    assert "group:[Administrators] rid:[0x220]" in rpcclient("enumalsgroups builtin").out
    assert f"{machine[1]}" in rpcclient(f"lookupdomain {machine[0]}").out
    assert f"rid {rid:#x}: {server.user} (1)" in rpcclient(f"samlookuprids domain {rid}").out
    assert f"name {server.user}: {rid:#x} (1)" in rpcclient(f"samlookupnames domain {server.user}").out
    assert alice in rpcclient("queryaliasmem builtin 545").out
    assert "group rid:[0x221]" in rpcclient(f"queryuseraliases builtin {alice}").out


@pytest.mark.smbd_differs("has the domain group of its passdb")
def test_a_user(rpcclient, server, alice):
    """MS-SAMR 3.1.5.5.5, 3.1.5.9.1."""
    rid = int(alice.rsplit("-", 1)[1])
    for name in (server.user, rid):
        out = rpcclient(f"queryuser {name}").out
        assert re.search(rf"User Name\s*:\s*{server.user}\n", out) and re.search(rf"user_rid\s*:\s*{rid:#x}", out)
    assert "group rid:[0x201]" in rpcclient(f"queryusergroups {rid}").out
    assert "NT_STATUS_NO_SUCH_USER" in rpcclient("queryuser 99999", status=None).out


@pytest.mark.smbd_differs("has the domain group of its passdb")
def test_a_group(rpcclient, alice):
    """MS-SAMR 3.1.5.5.3, 3.1.5.8.3: the primary group of all accounts."""
    out = rpcclient("querygroup 513").out
    assert re.search(r"Group Name:\s*None\n", out) and re.search(r"Num Members:\s*[1-9]", out)
    assert f"rid:[{int(alice.rsplit('-', 1)[1]):#x}] attr:[0x7]" in rpcclient("querygroupmem 513").out
    assert "NT_STATUS_NO_SUCH_GROUP" in rpcclient("querygroup 514", status=None).out


@pytest.mark.smbd_differs("knows the user by its username map only")
def test_lists_for_display(rpcclient, server, machine, alice):
    """MS-SAMR 3.1.5.3: all calls, and pages that begin where the previous one ended."""
    rid = int(alice.rsplit("-", 1)[1])
    for command in ("querydispinfo", "querydispinfo2", "querydispinfo3"):
        out = rpcclient(f"{command} 1").out
        assert re.search(rf"RID: {rid:#x} .*Account: {server.user}\s", out)
        assert re.search(r"RID: 0x201 .*Account: None\s", rpcclient(f"{command} 3").out)
        assert re.search(rf"Account: {server.user}\b", rpcclient(f"{command} 4").out)
    rpc = bind(server, r"\samr", samr.MSRPC_UUID_SAMR)
    sam = samr.hSamrConnect(rpc)["ServerHandle"]
    sid = samr.hSamrLookupDomainInSamServer(rpc, sam, machine[0])["DomainId"]
    domain = samr.hSamrOpenDomain(rpc, sam, domainId=sid)["DomainHandle"]
    names, index, more = [], 0, True
    while more:
        answer = samr.hSamrQueryDisplayInformation3(rpc, domain, samr.DOMAIN_DISPLAY_INFORMATION.DomainDisplayUser, index, 1)
        page = answer["Buffer"]["UserInformation"]["Buffer"]
        assert len(page) == 1
        names.append(page[0]["AccountName"])
        index, more = page[0]["Index"], answer["ErrorCode"] == 0x105
    assert server.user in names and names == sorted(names, key=str.upper)
    for number in (1, 2, 3, 4, 5):
        group = samr.hSamrOpenGroup(rpc, domain, MAXIMUM_ALLOWED, 513)["GroupHandle"]
        assert samr.hSamrQueryInformationGroup(rpc, group, number)["Buffer"]["tag"] == number


def test_password_policy(rpcclient, alice):
    """MS-SAMR 3.1.5.13.3, 3.1.5.13.4."""
    assert re.search(r"min_password_length\s*:\s*\d+", rpcclient("getdompwinfo").out)


@pytest.mark.smbd_differs("knows the user by its username map only")
def test_password_policy_of_a_user(rpcclient, alice):
    """MS-SAMR 3.1.5.13.3."""
    out = rpcclient(f"getusrdompwinfo {int(alice.rsplit('-', 1)[1])}").out
    assert re.search(r"min_password_length\s*:\s*\d+", out)


@pytest.mark.smbd_differs("knows the user by its username map only")
def test_every_class(server, machine, alice):
    """MS-SAMR 2.2.3.17, 2.2.6.29: impacket reads each class that there is."""
    rpc = bind(server, r"\samr", samr.MSRPC_UUID_SAMR)
    sam = samr.hSamrConnect(rpc)["ServerHandle"]
    sid = samr.hSamrLookupDomainInSamServer(rpc, sam, machine[0])["DomainId"]
    domain = samr.hSamrOpenDomain(rpc, sam, domainId=sid)["DomainHandle"]
    for number in (1, 2, 3, 5, 7, 8, 9):
        assert samr.hSamrQueryInformationDomain2(rpc, domain, number)["Buffer"]["tag"] == number
    user = samr.hSamrOpenUser(rpc, domain, MAXIMUM_ALLOWED, int(alice.rsplit("-", 1)[1]))["UserHandle"]
    for number in (1, 6, 7, 8, 9, 16, 17, 21):
        assert samr.hSamrQueryInformationUser2(rpc, user, number)["Buffer"]["tag"] == number
    samr.hSamrCloseHandle(rpc, user)
    with pytest.raises(Exception, match="(?i)context_mismatch|0x1c00001a"):
        samr.hSamrQueryInformationUser2(rpc, user, 21)


def test_the_server(rpcclient, server):
    """MS-SRVS 3.1.4.8, 3.1.4.17, 3.1.4.21, 3.1.4.32."""
    assert re.search(r"platform_id\s*:\s*500", rpcclient("srvinfo").out)
    rpcclient("netnamevalidate files 9")
    rpc = bind(server, r"\srvsvc", srvs.MSRPC_UUID_SRVS)
    for level in (0, 1, 2, 501, 502):
        shares = srvs.hNetrShareEnum(rpc, level)["InfoStruct"]["ShareInfo"][f"Level{level}"]["Buffer"]
        assert f"{server.share}\0" in {share[f"shi{level}_netname"] for share in shares}
    assert srvs.hNetrRemoteTOD(rpc)["BufferPtr"]["tod_elapsedt"] > 1_700_000_000


@pytest.mark.smbd_differs("lists sessions to every user, and validates no names")
def test_refused_to_users(rpcclient, server):
    """MS-SRVS 3.1.4.1, 3.1.4.2, 3.1.4.5: for administrators; names that are not valid (3.1.4.32)."""
    assert "WERR_INVALID_NAME" in rpcclient("netnamevalidate a/b 9", status=None).out
    rpc = bind(server, r"\srvsvc", srvs.MSRPC_UUID_SRVS)
    for call in (lambda: srvs.hNetrSessionEnum(rpc, NULL, NULL, 10), lambda: srvs.hNetrFileEnum(rpc, NULL, NULL, 3),
                 lambda: srvs.hNetrConnectionEnum(rpc, f"{server.share}\0", 1)):
        with pytest.raises(Exception, match="(?i)access.denied"):
            call()
