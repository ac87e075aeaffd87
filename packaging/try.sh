# Runs in the machine of scripts/test-package, as root, when it has booted: the same steps with the .deb and with the .rpm.
set -euo pipefail
export HOME=/root LC_ALL=C CAUSEWAY_PASSWORD=secret1 DEBIAN_FRONTEND=noninteractive
trap 'echo "package: FAILED in line $LINENO"; journalctl -u causeway --no-pager -n 30 || true' ERR
say() { echo "package: $*"; }
# An inverted command would not end the script.
refuse() { if "$@"; then echo "package: FAILED: this was to be refused: $*"; exit 1; fi; }
# The package's commands for each kind. The database of rpm knows no package of this machine, so it cannot check dependencies.
install() { case $1 in deb) dpkg -i /causeway.deb ;; rpm) rpm -i --nodeps /causeway.rpm ;; esac; }
upgrade() { case $1 in deb) dpkg -i /causeway.deb </dev/null ;; rpm) rpm -U --force --nodeps /causeway.rpm ;; esac; }
remove() { case $1 in deb) dpkg -r causeway ;; rpm) rpm -e causeway ;; esac; }

try() {
  local kind=$1 sum
  say "$kind: install"
  install "$kind"
  getent passwd causeway >/dev/null
  refuse systemctl is-active --quiet causeway
  man -w causeway-pool-create causeway >/dev/null
  for file in bash-completion/completions/causeway zsh/*/_causeway fish/vendor_completions.d/causeway.fish; do test -s /usr/share/$file; done
  bash -n /usr/share/bash-completion/completions/causeway
  causeway config check

  say "$kind: setup"
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

  say "$kind: administration: the server changes its own files"
  echo secret2 | causeway user add bob --password-stdin
  mkdir -p -m 777 /srv/more
  causeway share add more /srv/more
  smbclient -U bob%secret2 //127.0.0.1/more -c "put /tmp/hello bobs"
  mkdir -p /var/lib/causeway/disks
  causeway disk create-file /var/lib/causeway/disks/{a,b}.disk --size 64MiB
  causeway pool create tank --assume-atomic --disk /var/lib/causeway/disks/{a,b}.disk
  causeway space create vm --pool tank --resiliency mirror --size 16MiB
  causeway pool list
  systemd-analyze security --no-pager causeway | tail -n 1

  say "$kind: upgrade: keeps the configuration, and the server runs again"
  sum=$(sha256sum /etc/causeway/causeway.toml /etc/causeway/users.toml)
  upgrade "$kind"
  test "$sum" = "$(sha256sum /etc/causeway/causeway.toml /etc/causeway/users.toml)"
  systemctl is-active --quiet causeway
  smbclient -U ann%secret1 //127.0.0.1/files -c "get one /tmp/back"

  say "$kind: removal: keeps data"
  remove "$kind"
  refuse systemctl is-active --quiet causeway
  # rpm keeps a configuration that was changed beside its place, dpkg leaves it.
  test -s /etc/causeway/causeway.toml || test -s /etc/causeway/causeway.toml.rpmsave
  test -e /etc/causeway/users.toml && test -s /srv/files/one && test -s /srv/files/d/two && test -s /var/lib/causeway/disks/a.disk
}

try deb
dpkg --purge causeway
test -e /etc/causeway/users.toml && test -s /srv/files/one
rm -rf /etc/causeway /var/lib/causeway /srv/files /srv/more
userdel causeway
try rpm
say "all holds"
