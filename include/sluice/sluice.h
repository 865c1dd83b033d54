/// @file
/// All of sluice but its part for LibTorch (torch.h). There are two classes to know: Job and
/// Session.
#pragma once

#include <sluice/config.h>
#include <sluice/device.h>
#include <sluice/job.h>
#include <sluice/model.h>
#include <sluice/observer.h>
#include <sluice/session.h>
#include <sluice/status.h>
