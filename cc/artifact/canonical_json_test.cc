#include "cc/artifact/canonical_json.h"

#include <string>

#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

std::string Canonical(std::string_view text) {
  auto result = CanonicalJson(text);
  return result.ok() ? *result : "refused: " + result.status().message();
}

TEST(CanonicalJsonTest, SortsKeysByBytesAndDropsWhiteSpace) {
  EXPECT_EQ(Canonical(" { \"b\" : [ 1 , 2 ] , \"a\" : { } } \n"), R"({"a":{},"b":[1,2]})");
  EXPECT_EQ(Canonical(R"({"aa":1,"a":2,"B":3})"), R"({"B":3,"a":2,"aa":1})");
  // By UTF-8 bytes U+FFFF sorts before U+10000; by UTF-16 units it would not.
  EXPECT_EQ(Canonical("{\"\xF0\x90\x80\x80\":1,\"\xEF\xBF\xBF\":2}"), "{\"\xEF\xBF\xBF\":2,\"\xF0\x90\x80\x80\":1}");
}

TEST(CanonicalJsonTest, ScalarsKeepTheirValue) {
  EXPECT_EQ(Canonical("[null,true,false,0,9007199254740991,\"f64:7ff8000000000000\"]"),
            "[null,true,false,0,9007199254740991,\"f64:7ff8000000000000\"]");
  EXPECT_EQ(Canonical("7"), "7");
}

TEST(CanonicalJsonTest, EscapesAsLittleAsPossible) {
  EXPECT_EQ(Canonical(R"("\u0041\/\u00e9\ud83d\ude00\u007f\u2028")"), "\"A/\xC3\xA9\xF0\x9F\x98\x80\x7F\xE2\x80\xA8\"");
  EXPECT_EQ(Canonical(R"("\u0000\u0001\u001F\b\t\n\f\r\"\\")"), R"("\u0000\u0001\u001f\b\t\n\f\r\"\\")");
}

TEST(CanonicalJsonTest, IsItsOwnFixedPoint) {
  const std::string once = Canonical(R"({"z":[{"k":"\u0007é"},[]],"a":{"x":{},"w":"\/"}})");
  EXPECT_EQ(Canonical(once), once);
}

TEST(CanonicalJsonTest, RefusesWithThePath) {
  EXPECT_THAT(Canonical(R"({"a":{"b":[1,2.5]}})"), HasSubstr(R"(at "$.a.b[1]": a number that is no integer)"));
  EXPECT_THAT(Canonical("[1e2]"), HasSubstr("no integer"));
  EXPECT_THAT(Canonical("[-1]"), HasSubstr("negative integer -1"));
  EXPECT_THAT(Canonical("[-0]"), HasSubstr("negative integer 0"));
  EXPECT_THAT(Canonical("[9007199254740992]"), HasSubstr("past 2^53-1"));
  EXPECT_THAT(Canonical("[18446744073709551616]"), HasSubstr("no integer"));
  EXPECT_THAT(Canonical(R"({"a":1,"b":{"c":1,"c":1}})"), HasSubstr(R"(at "$.b.c": the key stands twice)"));
  EXPECT_THAT(Canonical(R"({"a":1,"\u0061":1})"), HasSubstr("twice"));
  EXPECT_THAT(Canonical(R"({"a\u0000":1})"), HasSubstr("NUL at byte 1"));
  EXPECT_THAT(Canonical(R"({"":1})"), HasSubstr("the name is empty"));
  EXPECT_THAT(Canonical("{\"" + std::string(4097, 'k') + "\":1}"), HasSubstr("the name has 4097 bytes"));
  EXPECT_EQ(Canonical("{\"" + std::string(4096, 'k') + "\":1}").size(), 4096U + 6);
}

TEST(CanonicalJsonTest, RefusesWithTheByteOffset) {
  EXPECT_THAT(Canonical("{\"a\":1}x"), HasSubstr("byte 7"));
  EXPECT_THAT(Canonical("{\"a\":1,}"), HasSubstr("byte 7"));
  EXPECT_THAT(Canonical("[01]"), HasSubstr("byte 2"));
  EXPECT_THAT(Canonical(""), HasSubstr("empty"));
  EXPECT_THAT(Canonical("NaN"), HasSubstr("refused"));
  EXPECT_THAT(Canonical("[1]//"), HasSubstr("refused"));
  EXPECT_THAT(Canonical(std::string("[1]\0[2]", 7)), HasSubstr("a NUL at byte 3"));
  EXPECT_THAT(Canonical("[\"\xC0\x80\"]"), HasSubstr("not UTF-8 at byte 2"));
  EXPECT_THAT(Canonical(R"(["\ud800"])"), HasSubstr("refused"));
  EXPECT_THAT(Canonical(R"(["\udc00"])"), HasSubstr("surrogate"));
}

TEST(CanonicalJsonTest, BoundsTheDepth) {
  EXPECT_EQ(Canonical("[[[[[[[[]]]]]]]]"), "[[[[[[[[]]]]]]]]");
  EXPECT_THAT(Canonical("[[[[[[[[[]]]]]]]]]"), HasSubstr("nested deeper than 8"));
  EXPECT_THAT(Canonical(std::string(1000000, '[')), HasSubstr("nested deeper than 8"));
}

TEST(CanonicalJsonTest, AFieldIsAnObjectOneLevelLessDeep) {
  EXPECT_TRUE(CanonicalObject(R"({"a":[[[[[[]]]]]]})").ok());
  EXPECT_THAT(CanonicalObject(R"({"a":[[[[[[[]]]]]]]})").status().message(), HasSubstr("nested deeper than 7"));
  EXPECT_THAT(CanonicalObject("[]").status().message(), HasSubstr("an object is wanted, not \"[]\""));
}

TEST(CanonicalJsonTest, MembersAreCanonicalTexts) {
  const auto object = CanonicalMembers(R"({"b":[ 1, {"y":2,"x":1} ],"a":"\u0041"})");
  ASSERT_TRUE(object.ok());
  ASSERT_EQ(object->size(), 2U);
  EXPECT_EQ((*object)[0].key + (*object)[0].value, R"(a"A")");
  EXPECT_EQ((*object)[1].key + (*object)[1].value, R"(b[1,{"x":1,"y":2}])");
  const auto array = CanonicalMembers("[ null,[] ]");
  ASSERT_TRUE(array.ok());
  ASSERT_EQ(array->size(), 2U);
  EXPECT_EQ((*array)[1].key + (*array)[1].value, "[]");
  std::string many = "[0";
  for (size_t i = 1; i < kMaxShards; ++i) many += ",0";
  EXPECT_TRUE(CanonicalMembers(many + "]").ok());
  EXPECT_THAT(CanonicalMembers(many + ",0]").status().message(), HasSubstr("more than 65536 elements"));
  EXPECT_THAT(CanonicalMembers("7").status().message(), HasSubstr("an object or an array is wanted, not \"7\""));
}

TEST(JsonTextTest, FindsWhereUtf8Ends) {
  EXPECT_EQ(FirstInvalidUtf8(
                "plain, \xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"),
            std::nullopt);
  for (const std::string bad :
       {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xC2", "\xE1\x80", "\xF1\x80\x80", "\xC2\x41", "\xE1\x80\xC0", "\xFF"}) {
    EXPECT_EQ(FirstInvalidUtf8("0123456789" + bad), 10U) << Quoted(bad);
  }
}

TEST(JsonTextTest, QuotedIsAlwaysShortUtf8) {
  EXPECT_EQ(Quoted("a\"\n"), R"("a\"\n")");
  EXPECT_EQ(Quoted("a\xFFz"), R"("a?z")");
  EXPECT_THAT(Quoted(std::string(200, 'x')), HasSubstr("... (200 bytes)"));
  EXPECT_EQ(FirstInvalidUtf8(Quoted(std::string(79, 'x') + "\xC3\xA9")), std::nullopt);
}

}  // namespace
}  // namespace coldsnap
