#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <tutti/os/sync_folder.hpp>

namespace tutti::os {

/// Makes a folder and missing folders above it, and syncs every folder that got a new entry, so that none is lost in a
/// power failure. Returns the synced folders, the uppermost first. Errors: std::filesystem::filesystem_error; as
/// sync_folder().
inline std::vector<std::string> make_durable_folder(const std::filesystem::path& folder) {
  std::vector<std::string> changed;
  std::filesystem::path at = std::filesystem::absolute(folder);
  if (!at.has_filename()) at = at.parent_path();  // for "folder/"
  for (; !std::filesystem::exists(at) && at.has_relative_path(); at = at.parent_path())
    changed.insert(changed.begin(), at.parent_path().string());
  std::filesystem::create_directories(folder);
  for (const std::string& above : changed) sync_folder(above);
  return changed;
}

}  // namespace tutti::os
