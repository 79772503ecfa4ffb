#include "io/folder_lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "testing.h"

namespace wgrad::io {
namespace {

std::string refusal(const fs::path& folder) {
  try {
    const FolderLock lock(folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return {};
}

TEST(FolderLock, KeepsOthersOutUntilItsEnd) {
  const TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    const std::string text = refusal(folder.path());
    EXPECT_EQ(text.find(folder.path().string() + ": another process ("), 0u) << text;
    EXPECT_NE(text.find(std::to_string(::getpid())), std::string::npos) << text;
  }
  EXPECT_EQ(refusal(folder.path()), "");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(FolderLock, OfAKilledProcessIsFree) {
  const TemporaryFolder folder;
  int locked[2];
  ASSERT_EQ(::pipe(locked), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    if (::write(locked[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  EXPECT_NE(refusal(folder.path()).find(std::to_string(child)), std::string::npos);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(fs::exists(folder.path() / ".lock"));
  EXPECT_EQ(refusal(folder.path()), "");
  ::close(locked[0]);
  ::close(locked[1]);
}

TEST(FolderLock, OverAFileThatAnotherProgramWroteSaysNoProcess) {
  const TemporaryFolder folder;
  const FolderLock lock(folder.path());
  folder.file(".lock", std::string(100, '\xff'));
  EXPECT_EQ(refusal(folder.path()).find(folder.path().string() + ": another process writes"), 0u);
}

}  // namespace
}  // namespace wgrad::io
