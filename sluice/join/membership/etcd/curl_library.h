// libcurl's functions, found at run time. Only a job that agrees on its members in etcd loads it: it
// brings some twenty libraries along, and a wheel would otherwise have to hold them all. Used by the
// .cc files of this folder.
#pragma once

#include <curl/curl.h>

#include <sluice/base/status.h>

// The header makes macros of some names that hide the members of CurlLibrary.
#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

// NOLINTBEGIN(cppcoreguidelines-macro-usage): one list for the members and the loop that fills them
#define SLUICE_CURL_FUNCTIONS(each)                                                           \
  each(curl_easy_cleanup) each(curl_easy_getinfo) each(curl_easy_init) each(curl_easy_setopt) \
      each(curl_easy_strerror) each(curl_global_init) each(curl_multi_add_handle)             \
          each(curl_multi_cleanup) each(curl_multi_info_read) each(curl_multi_init)           \
              each(curl_multi_remove_handle) each(curl_multi_setopt)                          \
                  each(curl_multi_socket_action) each(curl_slist_append) each(curl_slist_free_all)
// NOLINTEND(cppcoreguidelines-macro-usage)

namespace sluice::membership {

struct CurlLibrary {
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define SLUICE_CURL_MEMBER(name) \
  decltype(&::name) name = nullptr;  // NOLINT(readability-identifier-naming)
  SLUICE_CURL_FUNCTIONS(SLUICE_CURL_MEMBER)
#undef SLUICE_CURL_MEMBER
};

// Loads libcurl, once in a process. The error says what to install. Any thread.
Status loadCurl();

// REQUIRES: loadCurl() has returned ok.
const CurlLibrary& curl();

}  // namespace sluice::membership
