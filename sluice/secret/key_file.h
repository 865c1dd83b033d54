// Gets the job key from the options job-key-file and job-key. Called once, at start-up.
#pragma once

#include <string>

#include <sluice/base/config.h>
#include <sluice/secret/job_key.h>

namespace sluice::secret {

// Returns the key that the options name, or JobKey::none() if they name no key.
Result<JobKey> loadJobKey(const base::Config& config);

// The file must be a regular one that belongs to root or to this process's user, and that nobody
// else may open. `path` may be a symbolic link to it. Never waits.
Result<JobKey> readKeyFile(const std::string& path);

// Makes a file of mode 0600 that holds `key`; a file that exists already is left alone.
Status writeKeyFile(const std::string& path, const JobKey& key);

// Ok iff a job may talk over `address` with this key: with a secret key always, without one only on
// loopback addresses or if the user has said `insecure`. The error names the two commands that make
// a secret key and use it.
Status checkKeyFor(const JobKey& key, const base::Config& config, std::string_view address,
                   bool isLoopback);

}  // namespace sluice::secret
