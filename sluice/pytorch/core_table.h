// The engine's side of the table (table.h): its functions, for a module that is built for one Torch.
#pragma once

#include <sluice/pytorch/table.h>

namespace sluice::pytorch {

const table::CoreTable& coreTable();

}  // namespace sluice::pytorch
