// Finds the version of PyTorch that a training on this host would import. Any thread; waits for at
// most a few seconds.
#pragma once

#include <string>

namespace sluice::doctor {

// Asks the Python beside this program, or the first on the PATH, without importing PyTorch. Empty
// if there is no Python or no PyTorch.
std::string findTorchVersion();

}  // namespace sluice::doctor
