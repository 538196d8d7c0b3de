#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <typeinfo>

namespace tandem {

/// What the `Expected` error said that `action` threw, for a matcher; for
/// another error or none a text that no matcher wants.
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
