#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <tutti/train/tensor_file.hpp>
#include <vector>

#include "support/failure_of.hpp"
#include "support/temporary_directory.hpp"

namespace {
using namespace tutti::train;
using tutti_test::failure_of;
using tutti_test::temporary_directory;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace

TEST_CASE("tensor_file: reads a file that another program wrote") {
  std::vector<float> weight(6);
  std::vector<double> bias(3);
  std::int64_t number = 0;
  std::vector<tutti::bfloat16> empty;
  bool mask[3] = {};
  const std::vector<named_tensor> tensors{
      tensor("layer.weight", std::span{weight}, {2, 3}), tensor("layer.bias", std::span{bias}),
      tensor("empty", std::span{empty}, {0, 4}), tensor("mask", std::span<bool>{mask})};
  const std::string golden = TUTTI_SOURCE_DIR "/tests/train/golden/model.safetensors";
  const metadata words = read_tensors(golden, tensors);
  CHECK(words == metadata{{"format", "pt"}, {"note", "tab\tand \xf0\x9d\x84\x9e"}});
  CHECK(weight == std::vector<float>{0, 0.5, -1, 1.5, 2, 1e30f});
  CHECK(bias == std::vector<double>{1, -2, 0.1});
  CHECK((mask[0] && !mask[1] && mask[2]));
  const std::string scalar =
      "gr\xc3\xb6\xc3\x9f"
      "e \"q\"";
  const tensor_file file{golden};
  const auto* stored = file.header().find(scalar);
  REQUIRE(stored != nullptr);
  CHECK(stored->shape.empty());
  read_tensors(golden, std::vector{tensor(scalar, number)});
  CHECK(number == -7);
}

TEST_CASE("tensor_file: scalars are of shape [], spans of a fixed length are vectors") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  const std::int64_t seen = 41;
  std::array<float, 3> a{1, 2, 3}, b{};
  write_tensors(path, std::vector{tensor("num_batches_tracked", seen), tensor("a", std::span{a}),
                                  tensor("also a scalar", std::span{a}.first<1>(), {})});
  CHECK(tensor_file{path}.header().find("num_batches_tracked")->shape.empty());
  CHECK(tensor_file{path}.header().find("also a scalar")->shape.empty());
  CHECK(tensor_file{path}.header().find("a")->shape == std::vector<std::uint64_t>{3});
  std::int64_t number = 0;
  float one = 0;
  read_tensors(path, std::vector{tensor("num_batches_tracked", number), tensor("a", std::span{b}, {3}),
                                 tensor("also a scalar", one)});
  CHECK(number == 41);
  CHECK(a == b);
  CHECK(one == 1);
  const std::vector vector{tensor("num_batches_tracked", std::span{&number, 1})};
  CHECK(failure_of([&] { read_tensors(path, vector); }).mentions("int64 [] where int64 [1] is expected"));
  CHECK_THROWS_AS(read_tensors(path, std::vector{tensor("num_batches_tracked", seen)}), tutti::usage_error);
  CHECK_THROWS_AS((void)tensor("a", std::span{a}, {}), tutti::usage_error);
}

TEST_CASE("tensor_file: what is written is read again, and its bytes are those of the format") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1, 2, 3, 4}, b(4);
  write_tensors(path, std::vector{tensor("a", std::span{a}, {2, 2})}, {{"epoch", "7"}});
  const std::string json = R"({"__metadata__":{"epoch":"7"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  const std::string bytes = bytes_of(path);
  REQUIRE(bytes.size() == 8 + 88 + 16);
  CHECK(bytes.substr(0, 8) == std::string("\x58\0\0\0\0\0\0\0", 8));
  CHECK(bytes.substr(8, json.size()) == json);
  CHECK(bytes.substr(8 + json.size(), 88 - json.size()) == std::string(88 - json.size(), ' '));
  CHECK(read_tensors(path, std::vector{tensor("a", std::span{b}, {2, 2})}) == metadata{{"epoch", "7"}});
  CHECK(a == b);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("tensor_file: const tensors are saved beside others, and are not loaded") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  const std::vector<float> a{1, 2};
  std::vector<double> b{3};
  std::vector<float> x(2);
  const std::vector both{tensor("a", std::span{a}), tensor("b", std::span{b})};
  write_tensors(path, both);
  read_tensors(path, std::vector{tensor("a", std::span{x}), both[1]});
  CHECK(x == a);
  CHECK_THROWS_AS(read_tensors(path, both), tutti::usage_error);
}

TEST_CASE("tensor_file: names fit with and without module.") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1}, b{2}, c{3};
  write_tensors(path, std::vector{tensor("module.a", std::span{a}), tensor("b", std::span{b}),
                                  tensor("c", std::span{c}), tensor("module.c", std::span{a})});
  std::vector<float> x(1), y(1), z(1);
  read_tensors(path,
               std::vector{tensor("a", std::span{x}), tensor("module.b", std::span{y}), tensor("c", std::span{z})});
  CHECK(x[0] == 1);
  CHECK(y[0] == 2);
  CHECK(z[0] == 3);
}

TEST_CASE("tensor_file: files that are cut short, or are others, are refused; tensors stay as they were") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1, 2, 3, 4}, b{9, 9, 9, 9};
  write_tensors(path, std::vector{tensor("a", std::span{a})});
  const std::string whole = bytes_of(path);
  const auto read = [&] { return failure_of([&] { read_tensors(path, std::vector{tensor("a", std::span{b})}); }); };
  for (std::size_t n = 0; n < whole.size(); ++n) {
    write(path, whole.substr(0, n));
    const auto f = read();
    REQUIRE(f.kind == tutti::errc::protocol);
    REQUIRE(f.mentions(path));
  }
  write(path, whole + "x");
  CHECK(read().mentions("17 bytes of data"));
  write(path,
        "\x7f"
        "ELF\x02\x01\x01 and more of it");
  CHECK(read().mentions("another kind of file"));
  CHECK(b == std::vector<float>(4, 9));
  std::filesystem::remove(path);
  CHECK(read().kind == tutti::errc::system);
  CHECK(read().mentions("No such file"));
  CHECK(failure_of([&] { tensor_file{folder.path().string()}; }).kind == tutti::errc::system);
}

TEST_CASE("tensor_file: another model's file is refused before anything is read") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1, 2, 3, 4}, x(4), y(3);
  std::vector<double> d(4);
  write_tensors(path, std::vector{tensor("a", std::span{a})});
  const auto read = [&](named_tensor second) {
    return failure_of([&] { read_tensors(path, std::vector{tensor("a", std::span{x}), std::move(second)}); });
  };
  CHECK(read(tensor("b", std::span{y})).kind == tutti::errc::mismatch);
  CHECK(read(tensor("b", std::span{y})).mentions("no tensor \"b\""));
  CHECK(read(tensor("a", std::span{y})).mentions("float32 [4] where float32 [3] is expected"));
  CHECK(read(tensor("a", std::span{d})).mentions("float64"));
  CHECK(read(tensor("a", std::span{x}, {2, 2})).mentions("[2, 2]"));
  CHECK(x == std::vector<float>(4));
}

TEST_CASE("tensor_file: a file that cannot be written leaves the old one; wrong names are refused") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1};
  write_tensors(path, std::vector{tensor("a", std::span{a})});
  const std::string whole = bytes_of(path);
  CHECK_THROWS_AS(write_tensors(path, std::vector{tensor("a", std::span{a}), tensor("a", std::span{a})}),
                  tutti::usage_error);
  CHECK_THROWS_AS(write_tensors(path, std::vector{tensor("__metadata__", std::span{a})}), tutti::usage_error);
  CHECK_THROWS_AS((void)tensor("a", std::span{a}, {2}), tutti::usage_error);
  CHECK(failure_of([&] { write_tensors(folder.file("none/model"), {}); }).mentions("none/model"));
  CHECK(failure_of([&] { write_tensors(folder.path().string(), {}); }).kind == tutti::errc::system);
  CHECK(bytes_of(path) == whole);
}

TEST_CASE("tensor_file: names and words that are no UTF-8 are neither written nor read") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1, 2};
  const std::string latin =
      "gr\xfc\xdf"
      "e";
  const auto complaint = [&](const std::string& name, const metadata& words) {
    try {
      write_tensors(path, std::vector{tensor(name, std::span{a})}, words);
      return std::string{};
    } catch (const tutti::usage_error& e) {
      return std::string{e.what()};
    }
  };
  CHECK(complaint(latin, {}).find("the name of a tensor that begins with \"gr\" is no UTF-8 from byte 2") !=
        std::string::npos);
  CHECK(complaint("a", {{latin, "b"}}).find("a word of the metadata") != std::string::npos);
  CHECK(complaint("a", {{"b", latin}}).find("the metadata's \"b\"") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(complaint("gr\xc3\xbc\xc3\x9f"
                  "e",
                  {})
            .empty());
  std::string bytes = bytes_of(path);
  bytes[bytes.find('\xc3')] = 'a';
  write(path, bytes);
  CHECK(failure_of([&] { tensor_file{path}; }).mentions("byte 5 of the header is no UTF-8"));
}

TEST_CASE("tensor_file: a tensor of an unknown type is refused where it is asked for, and others are read") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  const std::string json =
      R"({"q":{"dtype":"F4","shape":[7],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(json.size());
  const float one = 1;
  write(path, bytes + json + "abcd" + std::string(reinterpret_cast<const char*>(&one), 4));
  std::vector<float> a(1);
  std::vector<std::uint8_t> q(7);
  read_tensors(path, std::vector{tensor("a", std::span{a})});
  CHECK(a[0] == 1);
  const auto f = failure_of([&] { read_tensors(path, std::vector{tensor("q", std::span{q})}); });
  CHECK(f.kind == tutti::errc::mismatch);
  CHECK(f.mentions("tensor \"q\" is of the unknown type \"F4\" [7] where uint8 [7] is expected"));
  const tensor_file file{path};
  std::string raw(4, ' ');
  file.read(*file.header().find("q"), 0, std::as_writable_bytes(std::span{raw}));
  CHECK(raw == "abcd");
  CHECK(safetensors_header::parse(file.header().encode(), 8).tensors == file.header().tensors);
}

TEST_CASE("tensor_file: a checkpoint that is saved through a symbolic link goes into the file that it names") {
  const temporary_directory folder;
  std::vector<float> a{1, 2}, b(2);
  std::filesystem::create_symlink("real", folder.file("link"));
  write_tensors(folder.file("link"), std::vector{tensor("a", std::span{a})});
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  read_tensors(folder.file("real"), std::vector{tensor("a", std::span{b})});
  CHECK(a == b);
}

TEST_CASE("tensor_file: what no reader would accept is refused before the old file is touched") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  std::vector<float> a{1, 2};
  write_tensors(path, std::vector{tensor("a", std::span{a})});
  const std::string whole = bytes_of(path);
  const auto complaint = [&](std::vector<named_tensor> tensors, const metadata& words = {}) {
    std::string text;
    try {
      write_tensors(path, tensors, words);
    } catch (const tutti::usage_error& e) {
      text = e.what();
    }
    REQUIRE(bytes_of(path) == whole);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    return text;
  };
  const named_tensor sound = tensor("a", std::span{a});
  CHECK(complaint({sound, sound}).find("tensor \"a\" comes twice") != std::string::npos);
  CHECK(complaint({tensor("__metadata__", std::span{a})}).find("has the name of the metadata") != std::string::npos);
  named_tensor other = sound;
  other.type = tutti::dtype_of<std::complex<double>>();
  CHECK(complaint({other}).find("is of type complex128, which") != std::string::npos);
  other = sound;
  other.shape = {3};
  CHECK(complaint({other}).find("has 8 bytes, not the 12 of float32 [3]") != std::string::npos);
  other.shape = {1ull << 63, 2};
  CHECK(complaint({other}).find("has 8 bytes, not the ") != std::string::npos);
  const std::string controls(safetensors_header::most_bytes / 6, '\1');  // six bytes each as JSON
  CHECK(complaint({sound}, {{"note", controls}}).find("and readers accept 100000000") != std::string::npos);
}
