#include "io/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>

#include "testing.h"

namespace wgrad::io {
namespace {

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

// Takes rights of the superuser away for a while, so that permissions count.
class WithoutPrivileges {
 public:
  explicit WithoutPrivileges(const fs::path& reachable) {
    fs::permissions(reachable, fs::perms::others_read | fs::perms::others_exec,
                    fs::perm_options::add);
    if (::geteuid() == 0) dropped_ = ::seteuid(65534) == 0;
  }
  ~WithoutPrivileges() {
    if (dropped_) static_cast<void>(!::seteuid(0));
  }

 private:
  bool dropped_ = false;
};

// Lets files grow to this size only, in the form of an error and not of a signal.
class WithFileSizeLimit {
 public:
  explicit WithFileSizeLimit(rlim_t bytes) : old_action_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~WithFileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_action_);
  }

 private:
  rlimit old_{};
  void (*old_action_)(int);
};

TEST(AtomicFile, ShowsItsContentOnlyAfterTheCommit) {
  const TemporaryFolder folder;
  folder.file("f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new ");
    file.write("content");
    EXPECT_EQ(content_of(folder / "f"), "old");
    file.commit();
  }
  EXPECT_EQ(content_of(folder / "f"), "new content");
  EXPECT_EQ(entries(folder.path()), 1u);
  write_file_atomically(folder / "g", "");
  EXPECT_EQ(content_of(folder / "g"), "");
}

TEST(AtomicFile, LeavesNothingWithoutACommit) {
  const TemporaryFolder folder;
  folder.file("f", "old");
  { AtomicFile(folder / "f").write("new"); }
  EXPECT_EQ(content_of(folder / "f"), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, KeepsTheOldContentWhenTheDiskTakesNoMore) {
  const TemporaryFolder folder;
  folder.file("f", "old");
  expect_error(ErrorKind::kRuntime, {"/f.tmp-", "cannot write: File too large (errno 27)"}, [&] {
    const WithFileSizeLimit limit(1000);
    write_file_atomically(folder / "f", std::string(5000, 'x'));
  });
  EXPECT_EQ(content_of(folder / "f"), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, NamesAMissingFolder) {
  const TemporaryFolder folder;
  expect_error(ErrorKind::kRuntime, {"/none/f", "No such file or directory", "check the path"},
               [&] { write_file_atomically(folder / "none/f", "x"); });
}

TEST(AtomicFile, NamesAFolderThatMayNotBeWritten) {
  const TemporaryFolder folder;
  const WithoutPrivileges rights(folder.path());
  fs::path closed = folder.path();
  if (::geteuid() != 65534) fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
  expect_error(ErrorKind::kRuntime,
               {"cannot create: Permission denied", "check the permissions of the file"},
               [&] { write_file_atomically(closed / "f", "x"); });
  expect_error(ErrorKind::kRuntime, {"cannot create: Permission denied"},
               [&] { AtomicFolder folder_in(closed / "d"); });
  expect_error(ErrorKind::kRuntime, {"cannot open for appending: Permission denied"},
               [&] { AppendFile log(closed / "log"); });
  if (::geteuid() != 65534) fs::permissions(closed, fs::perms::owner_all);
}

TEST(DiskErrors, SayWhatToDo) {
  const Error full = disk_error("/a/b", "write", ENOSPC);
  EXPECT_EQ(full.kind(), ErrorKind::kRuntime);
  EXPECT_STREQ(full.what(),
               "/a/b: cannot write: No space left on device (errno 28); free space on this disk or "
               "choose a folder on another one");
  EXPECT_THAT(disk_error("/a", "create", EROFS).what(),
              ::testing::HasSubstr("Read-only file system (errno 30); choose a folder on a disk"));
}

TEST(DiskErrors, ComeFromAFullDisk) {
  FileDescriptor full = FileDescriptor::create("/dev/full");
  const std::string text = "x";
  expect_error(ErrorKind::kRuntime, {"/dev/full: cannot write: No space left", "free space"},
               [&] { full.write_all(std::as_bytes(std::span(text))); });
}

TEST(AtomicFolder, AppearsWholeUnderItsName) {
  const TemporaryFolder folder;
  {
    AtomicFolder made(folder / "out/");
    EXPECT_EQ(made.target(), folder / "out");
    write_file_atomically(made.path() / "a", "1");
    fs::create_directories(made.path() / "sub/deep");
    write_file_atomically(made.path() / "sub/deep/b", "2");
    fs::create_symlink("nowhere", made.path() / "link");
    EXPECT_FALSE(fs::exists(folder / "out"));
    made.commit();
  }
  EXPECT_EQ(content_of(folder / "out/sub/deep/b"), "2");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFolder, IsRemovedWhenTheCallerFails) {
  const TemporaryFolder folder;
  EXPECT_THROW(
      {
        AtomicFolder made(folder / "out");
        write_file_atomically(made.path() / "a", "1");
        throw std::runtime_error("caller");
      },
      std::runtime_error);
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(AtomicFolder, RefusesAPlaceThatIsTaken) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  folder.file("out/old", "x");
  expect_input_error({"/out: it exists already", "choose another name"},
                     [&] { AtomicFolder made(folder / "out"); });
  expect_input_error({"it exists already"}, [&] { AtomicFolder made(folder.file("f", "x")); });
  EXPECT_EQ(content_of(folder / "out/old"), "x");
}

TEST(AtomicFolder, TakesAnEmptyFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  AtomicFolder made(folder / "out");
  write_file_atomically(made.path() / "a", "1");
  made.commit();
  EXPECT_EQ(content_of(folder / "out/a"), "1");
}

TEST(AtomicFolder, ReplacesAnOldFolderWhole) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  folder.file("out/old", "x");
  AtomicFolder made(folder / "out", IfExists::kReplace);
  write_file_atomically(made.path() / "new", "1");
  made.commit();
  EXPECT_TRUE(fs::exists(folder / "out/new"));
  EXPECT_FALSE(fs::exists(folder / "out/old"));
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AbandonedTemporaries, AreRemovedWhenTheirProcessIsGone) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string gone = ".tmp-" + std::to_string(child);
  fs::create_directory(folder / ("step" + gone));
  folder.file("step" + gone + "/a", "x");
  folder.file("file" + gone, "x");
  folder.file("mine.tmp-" + std::to_string(::getpid()), "x");
  folder.file("note.tmp-x", "x");
  folder.file("plain", "x");
  remove_abandoned(folder.path());
  EXPECT_FALSE(fs::exists(folder / ("step" + gone)));
  EXPECT_FALSE(fs::exists(folder / ("file" + gone)));
  EXPECT_EQ(entries(folder.path()), 3u);
  remove_abandoned(folder / "no such folder");
}

TEST(AppendFile, GrowsByLines) {
  const TemporaryFolder folder;
  {
    AppendFile log(folder / "log");
    log.line("one");
    log.line("");
    log.sync();
    EXPECT_EQ(log.size(), 5u);
  }
  AppendFile log(folder / "log");
  log.line("three");
  EXPECT_EQ(content_of(folder / "log"), "one\n\nthree\n");
  log.truncate(4);
  log.line("two");
  EXPECT_EQ(content_of(folder / "log"), "one\ntwo\n");
}

TEST(AppendFile, DropsALineThatWasTornByACrash) {
  const TemporaryFolder folder;
  for (const std::size_t torn : {1, 4095, 4096, 4097, 10000}) {
    for (const std::string& whole :
         {std::string(), std::string("a\nb\n"), std::string(5000, '\n')}) {
      AppendFile log(folder.file("log", whole + std::string(torn, 'x')));
      EXPECT_EQ(content_of(folder / "log"), whole);
    }
  }
}

TEST(AppendFile, TakesBackALineThatDidNotFit) {
  const TemporaryFolder folder;
  AppendFile log(folder / "log");
  log.line("one");
  expect_error(ErrorKind::kRuntime, {"/log: cannot write: File too large"}, [&] {
    const WithFileSizeLimit limit(10);
    log.line("a line that is too long");
  });
  EXPECT_EQ(content_of(folder / "log"), "one\n");
  log.line("two");
  EXPECT_EQ(content_of(folder / "log"), "one\ntwo\n");
}

}  // namespace
}  // namespace wgrad::io
