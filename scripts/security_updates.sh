#!/usr/bin/env bash
# Asks Debian's archive for newer versions of the libraries that a wheel holds, and of libcurl, which
# a job with etcd loads. Ends with 1 and their names if there are any, and with 2 if the archive cannot
# be asked. It changes nothing on this machine, and needs no root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
mkdir -p "$room/lists/partial" "$room/cache/archives/partial"
# The lists of this machine may be months old.
options=(-o Dir::State::Lists="$room/lists" -o Dir::Cache="$room/cache" -o APT::Update::Error-Mode=any
  -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o APT::Sandbox::User=root)
if ! apt-get "${options[@]}" update >"$room/log" 2>&1; then
  grep -m 3 '^[EW]: ' "$room/log" >&2 || tail -n 3 "$room/log" >&2
  echo "security_updates: the archive cannot be asked, so nobody knows of newer versions" >&2
  exit 2
fi
if ! apt-cache "${options[@]}" policy | grep -q 'l=Debian-Security'; then
  echo "security_updates: apt has no source of security updates (/etc/apt/sources.list)" >&2
  exit 2
fi
linked=$(scripts/static_libraries.sh list)
linked+=$'\n'"libcurl4 $(dpkg-query -W -f='${Version}' libcurl4)"
code=0
while read -r package version; do
  newest=$(apt-cache "${options[@]}" policy "$package" | sed -n 's/^  Candidate: //p')
  if [[ -z $newest || $newest == '(none)' ]]; then
    echo "security_updates: the archive has no $package" >&2
    code=1
  elif dpkg --compare-versions "$newest" gt "$version"; then
    echo "security_updates: $package $version is linked, and the archive has $newest" >&2
    code=1
  fi
done <<<"$linked"
((code)) || echo "security_updates: the archive has nothing newer than what is linked"
exit "$code"
