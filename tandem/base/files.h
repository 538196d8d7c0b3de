#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tandem {

/// Throws DataError "cannot WHAT 'PATH'" with errno's reason and, for common reasons,
/// an action. `what` is a verb such as "write".
[[noreturn]] void fail_on_file(const std::string& what, const std::string& path);

/// Returns the content of a file. Throws DataError, with the path and the reason, if
/// the file cannot be read or is longer than `most_bytes`.
std::string read_file(
    const std::string& path, size_t most_bytes = std::numeric_limits<size_t>::max());

/// Returns the content of an open file, from its current position. `path` is the name
/// of the file in errors.
std::string read_file(
    int fd, const std::string& path,
    size_t most_bytes = std::numeric_limits<size_t>::max());

/// Returns the directory of a path; "." for a name without a directory.
std::string parent_of(const std::string& path);

/// Replaces a file atomically. `write` gets a descriptor of a new file in the same
/// directory. The new file is then flushed to disk and renamed to `path`, so readers
/// see either the old or the new file, never a part. The user's umask determines the
/// mode of the new file.
///
/// If `path` names a device, a pipe or a link in /dev, such as /dev/stdout, `write`
/// gets its descriptor instead.
///
/// Throws DataError on failure. If writing fails, the old file stays and the new file
/// is removed. If only the rename cannot be flushed to disk, the new file is in place.
void replace_file(const std::string& path, const std::function<void(int fd)>& write);
void replace_file(const std::string& path, const std::string& content);

/// Writes `size` bytes to a descriptor. Throws DataError if a write fails; `path` is
/// the name of the file in the error.
void write_all(int fd, const void* data, size_t size, const std::string& path);

/// Removes temporary files that replace_file() left next to `path` when its process was
/// killed. No other process may be replacing the file. Throws DataError if the
/// directory cannot be read.
void remove_unfinished(const std::string& path);

/// Creates a directory and its missing parents, and flushes the directory's entry in
/// its parent to disk. Throws DataError on failure.
void make_directories(const std::string& path);

/// Creates a directory whose parent exists, and flushes its entry in the parent to
/// disk. Accepts an existing directory. Throws DataError on failure, also if `path` is
/// a link.
void make_subdirectory(const std::string& path);

/// Flushes a directory to disk, so that renames in it survive a power failure. Does
/// nothing if this user cannot read the directory or the file system cannot flush
/// directories. Throws DataError if flushing fails.
void sync_directory(const std::string& path);

/// Removes a file, or a directory and its content. Ignores errors, such as a missing
/// path.
void remove_all(const std::string& path);

/// Returns whether a path exists.
bool file_exists(const std::string& path);

/// Returns the names of all entries of a directory, sorted. Throws DataError if the
/// directory cannot be read.
std::vector<std::string> list_directory(const std::string& path);

/// Returns the directory for temporary files: $TMPDIR, /tmp or /dev/shm, the first that
/// this process can write and in which other users cannot rename its files. If there is
/// none, returns $TMPDIR or /tmp. Throws ConfigError if other users can rename files in
/// $TMPDIR.
std::string temporary_directory();

/// Creates a directory in temporary_directory() that only this user can enter. Returns
/// its path.
std::string make_private_directory();

/// Returns whether `path` still refers to the open file `fd`. A link at the end of
/// `path` is followed only if `follows_link`. Use it to check that no process has
/// removed a lock file before this process locked it.
bool is_still_at(int fd, const std::string& path, bool follows_link = false);

/// Returns whether `path` is an entry of `folder`, in any spelling of both: relative,
/// with slashes at the end, or through links.
bool is_in_folder(const std::string& path, const std::string& folder);

/// Returns $XDG_CACHE_HOME/tandem or ~/.cache/tandem. Does not create the directory.
/// Throws ConfigError if neither XDG_CACHE_HOME nor HOME is set.
std::string cache_directory();
/// Returns whether cache_directory() would succeed.
bool has_cache_directory();

/// Returns the path of the running program.
std::string executable_path();

/// Returns the path of a file that is installed with this program: in the program's
/// folder, or in ../libexec/tandem relative to it. Returns "" if the file is in
/// neither.
std::string find_installed(const std::string& file);

/// Returns the path of libtandem_cuda.so (comm/cuda/cuda_library.h), or of the library
/// that the environment variable TANDEM_CUDA_LIBRARY names. Returns "" if this build
/// has no such library.
std::string cuda_library_path();

}  // namespace tandem
