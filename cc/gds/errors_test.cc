#include "cc/gds/errors.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "cufile.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

#define CUFILE_OP(code, name, string) code,
constexpr int kAllNumbers[] = {CUFILEOP_STATUS_ENTRIES};
#undef CUFILE_OP

TEST(GdsErrors, EveryNumberOfTheHeaderHasOneCauseAndARemedy) {
  std::multiset<int> ours{0};
  for (const GdsErrorGroup& group : GdsErrorGroups()) ours.insert(group.numbers.begin(), group.numbers.end());
  EXPECT_EQ(ours, std::multiset<int>(std::begin(kAllNumbers), std::end(kAllNumbers)));
}

TEST(GdsErrors, TheStatusHasTheNumberTheCauseAndTheRemedy) {
  EXPECT_TRUE(GdsStatus({}, "x").ok());
  const Status status = GdsStatus({.number = 5011, .cuda = 100}, "open cuFile's driver", Code::kIo);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_EQ(status.domain(), Domain::kGds);
  EXPECT_EQ(status.native(), 5011);
  EXPECT_EQ(status.message(),
            StrCat("open cuFile's driver: cuFile error 5011 (CUDA error 100): ", ExplainGdsError(5011).cause));
  EXPECT_EQ(status.remedy(), ExplainGdsError(5011).remedy);
  EXPECT_NE(GdsStatus({.number = 5999}, "x").message().find("5999: a number that this version does not know"),
            std::string::npos);
}

TEST(GdsErrors, ThePageHasTheSameTable) {
  std::string table;
  for (const GdsErrorGroup& group : GdsErrorGroups()) {
    std::string numbers;
    for (const int number : group.numbers) numbers += StrCat(numbers.empty() ? "" : ", ", number);
    table += StrCat("| ", numbers, " | ", group.cause, " | ", group.remedy, " |\n");
  }
  std::ifstream file("docs/gds.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(page.find(table), std::string::npos) << "the table of docs/gds.md has to be:\n" << table;
}

}  // namespace
}  // namespace coldsnap
