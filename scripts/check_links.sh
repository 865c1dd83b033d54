#!/usr/bin/env bash
# Checks the links of the site that lead to other sites. It needs the network, so it is not part of
# the gate; scripts/build_site.sh checks the links inside the site.
exec "$(dirname "${BASH_SOURCE[0]}")/build_site.sh" outside
