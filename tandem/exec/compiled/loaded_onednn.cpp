// Loads oneDNN next to a LibTorch that contains another oneDNN. Both define weak
// symbols with the same names (templates of the standard library over types of oneDNN)
// but different code. If the linker bound this oneDNN like other libraries, the library
// loaded second would call into the first. dlopen() with RTLD_DEEPBIND makes this
// oneDNN find its own symbols first, and RTLD_LOCAL hides them from other libraries.
//
// This file defines the functions that dnnl.hpp calls, hidden in the program. Each
// jumps to the address of the library's function.

#include <dlfcn.h>
#include <dnnl_version.h>

#include "tandem/exec/compiled/onednn_library.h"

#if DNNL_VERSION_MAJOR >= 3
#define TANDEM_ONEDNN_VERSIONED(F)                             \
  F(dnnl_convolution_backward_data_primitive_desc_create)      \
  F(dnnl_convolution_backward_weights_primitive_desc_create)   \
  F(dnnl_convolution_forward_primitive_desc_create)            \
  F(dnnl_inner_product_backward_data_primitive_desc_create)    \
  F(dnnl_inner_product_backward_weights_primitive_desc_create) \
  F(dnnl_inner_product_forward_primitive_desc_create)          \
  F(dnnl_memory_desc_clone)                                    \
  F(dnnl_memory_desc_create_submemory)                         \
  F(dnnl_memory_desc_create_with_strides)                      \
  F(dnnl_memory_desc_create_with_tag)                          \
  F(dnnl_memory_desc_destroy)                                  \
  F(dnnl_memory_desc_query)
#else
#define TANDEM_ONEDNN_VERSIONED(F)                 \
  F(dnnl_convolution_backward_data_desc_init)      \
  F(dnnl_convolution_backward_weights_desc_init)   \
  F(dnnl_convolution_forward_desc_init)            \
  F(dnnl_inner_product_backward_data_desc_init)    \
  F(dnnl_inner_product_backward_weights_desc_init) \
  F(dnnl_inner_product_forward_desc_init)          \
  F(dnnl_memory_desc_init_submemory)               \
  F(dnnl_memory_desc_init_by_strides)              \
  F(dnnl_memory_desc_init_by_tag)                  \
  F(dnnl_post_ops_append_sum_v2)                   \
  F(dnnl_primitive_desc_iterator_create)           \
  F(dnnl_primitive_desc_iterator_destroy)          \
  F(dnnl_primitive_desc_iterator_fetch)
#endif

#define TANDEM_ONEDNN_FUNCTIONS(F)           \
  TANDEM_ONEDNN_VERSIONED(F)                 \
  F(dnnl_data_type_size)                     \
  F(dnnl_engine_create)                      \
  F(dnnl_engine_destroy)                     \
  F(dnnl_memory_create)                      \
  F(dnnl_memory_desc_equal)                  \
  F(dnnl_memory_desc_get_size)               \
  F(dnnl_memory_destroy)                     \
  F(dnnl_memory_get_data_handle)             \
  F(dnnl_memory_get_engine)                  \
  F(dnnl_memory_get_memory_desc)             \
  F(dnnl_post_ops_append_eltwise)            \
  F(dnnl_post_ops_append_sum)                \
  F(dnnl_post_ops_create)                    \
  F(dnnl_post_ops_destroy)                   \
  F(dnnl_primitive_attr_create)              \
  F(dnnl_primitive_attr_destroy)             \
  F(dnnl_primitive_attr_set_post_ops)        \
  F(dnnl_primitive_attr_set_scratchpad_mode) \
  F(dnnl_primitive_create)                   \
  F(dnnl_primitive_desc_destroy)             \
  F(dnnl_primitive_desc_query)               \
  F(dnnl_primitive_desc_query_md)            \
  F(dnnl_primitive_destroy)                  \
  F(dnnl_primitive_execute)                  \
  F(dnnl_reorder_primitive_desc_create)      \
  F(dnnl_sgemm)                              \
  F(dnnl_stream_create)                      \
  F(dnnl_stream_destroy)

#if defined(__x86_64__)
#define TANDEM_ONEDNN_JUMP(name) "  jmp *tandem_at_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define TANDEM_ONEDNN_JUMP(name)            \
  "  adrp x16, tandem_at_" #name            \
  "\n"                                      \
  "  ldr x16, [x16, :lo12:tandem_at_" #name \
  "]\n"                                     \
  "  br x16\n"
#endif

// Defines a variable for the address of a function, and a function that jumps to it.
#define TANDEM_ONEDNN_DEFINE(name)                                                     \
  extern "C" __attribute__((visibility("hidden"))) void* tandem_at_##name;             \
  __attribute__((used)) void* tandem_at_##name = nullptr;                              \
  asm(".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name \
      ":\n" TANDEM_ONEDNN_JUMP(name));
TANDEM_ONEDNN_FUNCTIONS(TANDEM_ONEDNN_DEFINE)

namespace tandem {

namespace {

#define TANDEM_TEXT_OF(value) #value
#define TANDEM_TEXT(value) TANDEM_TEXT_OF(value)
constexpr const char* kLibrary = "libdnnl.so." TANDEM_TEXT(DNNL_VERSION_MAJOR);

class Library {
 public:
  Library() : handle_(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) {
    if (handle_ == nullptr) {
      obstacle_ = dlerror();
      return;
    }
#define TANDEM_ONEDNN_FIND(name) tandem_at_##name = find(#name);
    TANDEM_ONEDNN_FUNCTIONS(TANDEM_ONEDNN_FIND)
    // Sets the threads of the OpenMP library that this oneDNN uses; LibTorch may use
    // another.
    set_threads_ = reinterpret_cast<void (*)(int)>(find("omp_set_num_threads"));
  }

  const std::string& obstacle() const {
    return obstacle_;
  }

  void set_threads(int count) const {
    set_threads_(count);
  }

 private:
  void* find(const char* name) {
    void* found = dlsym(handle_, name);
    if (found == nullptr) {
      obstacle_ = std::string(kLibrary) + " has no " + name;
    }
    return found;
  }

  // Handle of the library. It is never closed, because primitives may exist until the
  // program ends.
  void* handle_;
  std::string obstacle_;
  void (*set_threads_)(int) = nullptr;
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

}  // namespace

std::string onednn_obstacle() {
  const std::string& obstacle = library().obstacle();
  return obstacle.empty()
             ? ""
             : "oneDNN cannot be loaded (" + obstacle + "); install libdnnl-dev";
}

void set_onednn_threads(int count) {
  library().set_threads(count);
}

}  // namespace tandem
