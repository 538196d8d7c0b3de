#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tandem {

/// Throws DataError: "cannot write 'path'", errno's reason, and what to do about it.
/// `what`: "write", "read", ...
[[noreturn]] void fail_on_file(const std::string& what, const std::string& path);

/// The whole file. Throws DataError that names the path and the reason, also when the
/// file holds more than `most_bytes`; it is then not read to its end.
std::string read_file(
    const std::string& path, size_t most_bytes = std::numeric_limits<size_t>::max());

/// Replaces a file in one step: `write` gets a descriptor of a new file beside
/// it, which is then flushed to disk and renamed over `path`. Readers see the
/// old or the new file, never a part; on any failure the old one stays and the
/// new one is removed. Who may read it is what the user's umask says. Throws DataError,
/// also when the rename cannot be flushed to disk; the new file is then there.
void replace_file(const std::string& path, const std::function<void(int fd)>& write);
void replace_file(const std::string& path, const std::string& content);

/// Writes all bytes or throws DataError. `path` is for the message.
void write_all(int fd, const void* data, size_t size, const std::string& path);

/// Removes what replace_file() of a process that was killed left beside `path`; no
/// other process may be replacing it. Throws DataError when the directory cannot be
/// read.
void remove_unfinished(const std::string& path);

/// Makes a directory, flushed to disk, and its parents. Throws DataError.
void make_directories(const std::string& path);

/// Makes renames in a directory survive a power cut, where the file system can. Throws
/// DataError.
void sync_directory(const std::string& path);

/// Removes a file or a directory with all it holds; a missing one is fine.
void remove_all(const std::string& path);

bool file_exists(const std::string& path);

/// Names in a directory, sorted. Throws DataError when it cannot be read.
std::vector<std::string> list_directory(const std::string& path);

/// A new directory that only this user can enter, under $TMPDIR or /tmp.
std::string make_private_directory();

/// Whether a descriptor is still what the path names, links not followed: whoever held
/// a lock on it before may have removed it.
bool is_still_at(int fd, const std::string& path);

/// $XDG_CACHE_HOME/tandem or ~/.cache/tandem; not created. Throws ConfigError where
/// neither XDG_CACHE_HOME nor HOME is set.
std::string cache_directory();
bool has_cache_directory();

/// The running program's file.
std::string executable_path();

/// Path of a file that is installed with this program: in its folder, or in
/// PREFIX/libexec/tandem. "" if it is in neither.
std::string find_installed(const std::string& file);

/// Path of libtandem_cuda.so (comm/cuda/cuda_library.h), or of the library that the
/// environment variable TANDEM_CUDA_LIBRARY names; "" if this build has none.
std::string cuda_library_path();

}  // namespace tandem
