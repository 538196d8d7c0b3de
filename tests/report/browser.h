#pragma once

#include <string>

#include "tandem/base/files.h"
#include "tandem/base/process.h"

namespace tandem {

/// Returns the HTML of a page after a browser has run its scripts; "" if no browser is
/// installed. `profile` is a directory for files of the browser.
inline std::string drawn_page(const std::string& path, const std::string& profile) {
  for (const char* browser : {"/usr/bin/chromium", "/usr/bin/google-chrome"}) {
    if (file_exists(browser)) {
      return run_command(
                 {browser, "--headless", "--no-sandbox", "--disable-gpu",
                  "--user-data-dir=" + profile, "--window-size=1200,1600",
                  "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom",
                  "file://" + path},
                 {}, 300)
          .output;
    }
  }
  return "";
}

}  // namespace tandem
