# Runs in the machine of scripts/test-package, as root, when it has booted.
set -euo pipefail
export HOME=/root LC_ALL=C CAUSEWAY_PASSWORD=secret1 DEBIAN_FRONTEND=noninteractive
trap 'echo "package: FAILED in line $LINENO"; journalctl -u causeway --no-pager -n 30 || true' ERR
say() { echo "package: $*"; }
# An inverted command would not end the script.
refuse() { if "$@"; then echo "package: FAILED: this was to be refused: $*"; exit 1; fi; }

say install
dpkg -i /causeway.deb
getent passwd causeway >/dev/null
refuse systemctl is-active --quiet causeway
man -w causeway-pool-create causeway >/dev/null
for file in /usr/share/bash-completion/completions/causeway /usr/share/zsh/vendor-completions/_causeway \
  /usr/share/fish/vendor_completions.d/causeway.fish; do test -s $file; done
bash -n /usr/share/bash-completion/completions/causeway
causeway config check

say setup
echo secret1 | causeway setup --yes --share files --path /srv/files --user ann --password-stdin --start
test "$(ps -o user= -C causeway 2>/dev/null || stat -c %U /proc/"$(systemctl show -P MainPID causeway)")" = causeway
causeway status
causeway config check
echo hello >/tmp/hello
smbclient -U ann%secret1 //127.0.0.1/files -c "put /tmp/hello one; mkdir d; put /tmp/hello d/two"
smbclient -U ann%secret1 //127.0.0.1/files -c "get d/two /tmp/back"
cmp /tmp/hello /tmp/back
refuse smbclient -U ann%wrong //127.0.0.1/files -c ls
causeway put --transport rdma /tmp/hello smb://ann@127.0.0.1/files/three

say "administration: the server changes its own files"
echo secret2 | causeway user add bob --password-stdin
install -d -m 777 /srv/more
causeway share add more /srv/more
smbclient -U bob%secret2 //127.0.0.1/more -c "put /tmp/hello bobs"
mkdir -p /var/lib/causeway/disks
causeway disk create-file /var/lib/causeway/disks/{a,b}.disk --size 64MiB
causeway pool create tank --assume-atomic --disk /var/lib/causeway/disks/{a,b}.disk
causeway space create vm --pool tank --resiliency mirror --size 16MiB
causeway pool list
systemd-analyze security --no-pager causeway | tail -n 1

say "upgrade: keeps the configuration, and the server runs again"
sum=$(sha256sum /etc/causeway/causeway.toml /etc/causeway/users.toml)
dpkg -i /causeway.deb </dev/null
test "$sum" = "$(sha256sum /etc/causeway/causeway.toml /etc/causeway/users.toml)"
systemctl is-active --quiet causeway
smbclient -U ann%secret1 //127.0.0.1/files -c "get one /tmp/back"

say "removal: keeps data"
apt-get remove -y causeway || dpkg -r causeway
refuse systemctl is-active --quiet causeway
test -e /etc/causeway/users.toml && test -s /srv/files/one && test -s /srv/files/d/two && test -s /var/lib/causeway/disks/a.disk
dpkg --purge causeway
test -e /etc/causeway/users.toml && test -s /srv/files/one
say "all holds"
