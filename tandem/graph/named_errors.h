#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>

#include "tandem/base/error.h"

namespace tandem {

/// Calls `body`. An error of LibTorch, which is not always a c10::Error, becomes an
/// Error that begins with the text failure(), such as "conv1 fails". Errors of tandem
/// and errors about memory pass unchanged.
template <typename Body, typename Failure>
void with_named_errors(const Body& body, const Failure& failure) {
  try {
    body();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format(
        "[model] {}: {}; change this line of the model or its input", failure(),
        first_line(error)));
  }
}

}  // namespace tandem
