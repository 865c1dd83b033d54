#!/usr/bin/env bash
# Tests the gate: plants one fault after another in a copy of the tree and checks that the right
# step of .ci/run fails and gives the reason in its last lines. Prints the number of caught faults
# at its end.
#   scripts/ci_selftest.sh [FAULT...]     e.g. scripts/ci_selftest.sh leak race
# Only base/ is built in the copy, so it takes minutes and not the gate's whole time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -xf - -C "$copy"
cd "$copy"
git init -q . && git add -A
git -c user.name=selftest -c user.email=selftest@localhost commit -qm copy
export ONLY=base

# Each fault has the step that must catch it, the text that must be in that step's last lines, and a
# function that plants it.
declare -A stepOf saysOf
faults=()
fault() {
  faults+=("$1")
  stepOf[$1]=$2
  saysOf[$1]=$3
}
inTest() { # adds a test case at the end of a test file of base/
  sed -i "s|^namespace sluice::base {|#include <memory>\n#include <thread>\n\n&|" sluice/base/text_test.cc
  printf 'TEST(Planted, Fault) {\n%b\n}\n' "$1" >>sluice/base/text_test.cc
}

fault badFormat format 'text.cc.*code should be clang-formatted'
badFormat() { echo 'int   planted( ) ;' >>sluice/base/text.cc; }

fault misspelling spelling 'README.md.*==>'
misspelling() { echo "Wri""tting is easy." >>README.md; }

fault includeThatGoesUp graph 'base -> tools/cli goes up'
includeThatGoesUp() { sed -i '1i #include <tools/cli/table.h>' sluice/base/text.cc; }

fault foreignHeaderOutsideItsRoom graph 'belongs in sluice/transport/fabric/ucx only'
foreignHeaderOutsideItsRoom() { sed -i '1i #include <ucp/api/ucp.h>' sluice/base/text.cc; }

fault headerThatDoesNotStandAlone headers 'planted.h.*error'
headerThatDoesNotStandAlone() { printf '#pragma once\ninline std::string planted() { return {}; }\n' >sluice/base/planted.h; }

fault warning release 'text.cc.*error: unused variable'
warning() { printf 'void planted();\nvoid planted() { int unused = 0; }\n' >>sluice/base/text.cc; }

fault failingTest release 'Planted.Fault.*Failed'
failingTest() { inTest 'EXPECT_EQ(1, 2);'; }

fault tidyFinding tidy 'bugprone-use-after-move'
tidyFinding() { printf '#include <utility>\nstatic size_t planted(std::string a) {\n  const std::string b = std::move(a);\n  return a.size() + b.size();\n}\nsize_t plantedUse();\nsize_t plantedUse() { return planted("x"); }\n' >>sluice/base/text.cc; }

fault wrongName tidy 'readability-identifier-naming'
wrongName() { printf 'int Planted_name();\nint Planted_name() { return 1; }\n' >>sluice/base/text.cc; }

fault unguardedAccess asan 'thread-safety'
unguardedAccess() {
  printf '#include <sluice/base/mutex.h>\nclass Planted final {\n public:\n  int get() { return value_; }\n\n private:\n  sluice::base::Mutex mutex_;\n  int value_ SLUICE_GUARDED_BY(mutex_) = 0;\n};\nint plantedUse();\nint plantedUse() { return Planted().get(); }\n' >>sluice/base/text.cc
}

fault leak asan 'LeakSanitizer|byte\(s\) leaked'
leak() { inTest '  static int* volatile kept = new int(7);\n  EXPECT_EQ(*kept, 7);\n  kept = nullptr;'; }

fault overflow asan 'runtime error: signed integer overflow'
overflow() { inTest '  volatile int big = 2147483647;\n  big = big + 1;\n  EXPECT_NE(big, 0);'; }

fault useAfterFree asan 'AddressSanitizer: heap-use-after-free'
# The compiler itself refuses the plain form, so it must not see the origin of the pointer.
useAfterFree() { inTest '  auto owner = std::make_unique<int>(7);\n  const int* volatile gone = owner.get();\n  owner.reset();\n  EXPECT_NE(*gone, 8);'; }

fault dataRace tsan 'ThreadSanitizer: data race'
dataRace() { inTest '  int shared = 0;\n  std::thread other([&] { ++shared; });\n  ++shared;\n  other.join();\n  EXPECT_GT(shared, 0);'; }

# The copy must be clean before a fault is planted; otherwise an older fault would count as
# "caught".
chosen=("$@")
((${#chosen[@]})) || chosen=("${faults[@]}")
mapfile -t steps < <(for name in "${chosen[@]}"; do echo "${stepOf[$name]:?no such fault: $name}"; done | awk '!seen[$0]++')
echo "the copy without faults:"
.ci/run "${steps[@]}" | sed 's/^/  /'

caught=0
for name in "${chosen[@]}"; do
  step=${stepOf[$name]} start=$SECONDS
  "$name"
  if output=$(.ci/run "$step" 2>&1); then
    verdict="MISSED: the step passed"
  elif grep -qE "step $step failed" <<<"$output" && tail -n 13 <<<"$output" | grep -qE "${saysOf[$name]}"; then
    verdict="caught"
    caught=$((caught + 1))
  else
    verdict="MISSED: its last lines do not say '${saysOf[$name]}':"$'\n'$(tail -n 13 <<<"$output")
  fi
  printf '%-28s %-9s %3d s  %s\n' "$name" "$step" $((SECONDS - start)) "$verdict"
  git reset -q --hard && git clean -fdq
done
echo "faults caught: $caught of ${#chosen[@]}, in $SECONDS s"
((caught == ${#chosen[@]}))
