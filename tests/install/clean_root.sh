#!/bin/bash
# clean_root.sh SUITE DIR [PACKAGE...]: a fresh root of a Debian suite (bookworm, trixie) with systemd, D-Bus, polkit and these
# packages, and nothing of this project. Needs root, debootstrap and a Debian mirror (MIRROR=…, else debootstrap's own choice); does
# nothing where the root is there already. Takes some minutes.
set -euo pipefail
suite=${1:?a suite}; dir=${2:?a folder}; shift 2
[ ! -e "$dir/made" ] || exit 0
command -v debootstrap >/dev/null || { echo "clean_root: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
rm -rf "$dir" "$dir.new"
mkdir -p "$(dirname "$dir")"
debootstrap --variant=minbase "$suite" "$dir.new" ${MIRROR:+"$MIRROR"}
cp -L /etc/resolv.conf "$dir.new/etc/resolv.conf"
# What any host with a server under systemd has. polkitd wants a logind, which debootstrap alone does not find.
DEBIAN_FRONTEND=noninteractive chroot "$dir.new" sh -ec '
  printf "#!/bin/sh\nexit 101\n" > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
  apt-get -q update
  apt-get -q -y install --no-install-recommends systemd systemd-sysv libpam-systemd dbus polkitd python3 iproute2 procps "$@"
  rm /usr/sbin/policy-rc.d && apt-get clean' sh "$@"
touch "$dir.new/made"
mv "$dir.new" "$dir"
