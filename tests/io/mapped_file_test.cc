#include "io/mapped_file.h"

#include <string>
#include <utility>

#include "testing.h"

namespace wgrad::io {
namespace {

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
}

TEST(MappedFile, GivesTheFilesBytes) {
  const TemporaryFolder folder;
  const auto path = folder.file("a", "some bytes");
  const MappedFile file = MappedFile::open(path);
  EXPECT_EQ(text_of(file), "some bytes");
  EXPECT_EQ(file.path(), path);
}

TEST(MappedFile, MapsAnEmptyFileToNothing) {
  const TemporaryFolder folder;
  const MappedFile file = MappedFile::open(folder.file("a", ""));
  EXPECT_TRUE(file.bytes().empty());
  file.release(0, 100);
}

TEST(MappedFile, MovesItsMapping) {
  const TemporaryFolder folder;
  MappedFile first = MappedFile::open(folder.file("a", "first"));
  MappedFile second = MappedFile::open(folder.file("b", "second"));
  first = std::move(second);
  EXPECT_EQ(text_of(first), "second");
  EXPECT_TRUE(second.bytes().empty());
  const MappedFile third(std::move(first));
  EXPECT_EQ(text_of(third), "second");
}

TEST(MappedFile, StaysReadableAfterARelease) {
  const TemporaryFolder folder;
  std::string content(3 * 65536 + 17, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 >> 3);
  const MappedFile file = MappedFile::open(folder.file("a", content));
  file.release(5, content.size() - 5);
  file.release(content.size(), ~std::size_t{0});
  file.release(~std::size_t{0}, 1);
  file.release(file.bytes().subspan(70000));
  file.release(std::as_bytes(std::span(content)));
  EXPECT_EQ(text_of(file), content);
}

TEST(MappedFile, NamesAMissingFile) {
  expect_input_error({"/no/such/file: cannot open", "No such file", "check the path"},
                     [] { MappedFile::open("/no/such/file"); });
}

TEST(MappedFile, RefusesAFolderAndADevice) {
  const TemporaryFolder folder;
  expect_input_error({"Is a directory"}, [&] { MappedFile::open(folder.path()); });
  expect_input_error({"/dev/null", "no plain file"}, [] { MappedFile::open("/dev/null"); });
}

}  // namespace
}  // namespace wgrad::io
