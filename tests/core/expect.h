#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <typeinfo>

namespace tandem {

/// Returns the message of the `Expected` error that `action` throws. If `action` throws
/// another error or none, returns a text that no test expects.
template <typename Expected, typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another error) ") + typeid(error).name();
  }
  return "(no error)";
}

}  // namespace tandem
