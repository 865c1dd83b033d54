#!/usr/bin/env bash
# Builds an image of Debian, Python, the CPU build of Torch and sluice, without a daemon and without a
# registry: mmdebstrap makes the root folder and buildah the image. Needs root, and the packages
# mmdebstrap and buildah.
#
#   deploy/image.sh WHEEL TORCH_WHEEL_OR_NAME [IMAGE]    default: sluice:latest
#
# Copy it to a host with: buildah push --storage-driver vfs sluice:latest docker-archive:sluice.tar
set -euo pipefail
wheel=$(realpath "${1:?usage: deploy/image.sh WHEEL TORCH [IMAGE]}")
torch=${2:?usage: deploy/image.sh WHEEL TORCH [IMAGE]}
image=${3:-sluice:latest}
room=$(mktemp -d)
container=
b() { buildah --storage-driver vfs "$@"; }
end() {
  [[ -z $container ]] || b rm "$container" >/dev/null || true
  rm -rf "$room"
}
trap end EXIT
mmdebstrap --quiet --variant=essential --include=python3-minimal,python3-venv,libstdc++6 bookworm "$room/root.tar"
container=$(b from scratch)
root=$(b mount "$container")
tar --extract --file "$room/root.tar" --directory "$root"
python3 -m venv "$room/venv"
# Packages are unpacked from here, so that the image needs neither pip nor the network.
"$room/venv/bin/pip" install --quiet --target "$root/usr/lib/python3/dist-packages" "$torch" numpy "$wheel"
b config --env OMP_NUM_THREADS=1 --entrypoint '["python3"]' "$container"
b run --isolation chroot "$container" -- python3 -c 'import sluice, torch; print("sluice with Torch", torch.__version__)'
b umount "$container" >/dev/null
b commit --quiet "$container" "$image" >/dev/null
b images "$image"
