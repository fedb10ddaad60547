//! Filters and queries: the grammar, the checks against the type, and evaluation.
//!
//! `DDS_SEED` sets the seed of the random tests, which a failure prints.
#![expect(clippy::disallowed_methods, reason = "the seed of a random test is a variable")]
use spindle_dds_core::filter::{ContentFilter, Query};
use spindle_dds_core::{DdsError, ReturnCode};
use spindle_xcdr::*;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "geo::Color")]
enum Color {
    Red = 1,
    Green = 3,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct Inner {
    deep: i64,
    more: Option<i16>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct Track {
    #[dds(key)]
    id: u32,
    name: String,
    speed: f32,
    height: f64,
    color: Color,
    flag: bool,
    letter: Char8,
    inner: Inner,
    list: Vec<i16>,
    big: u64,
    other: i32,
}

fn track() -> Track {
    Track {
        id: 7,
        name: "alpha".to_owned(),
        speed: 0.1,
        height: 1.5,
        color: Color::Green,
        flag: true,
        letter: Char8(b'q'),
        inner: Inner { deep: -5, more: None },
        list: vec![10, 20, 30],
        big: u64::MAX,
        other: 7,
    }
}

fn of() -> Arc<DynamicType> {
    Arc::new(DynamicType::new(Track::description()))
}

fn sample(value: &Track) -> Vec<u8> {
    encode_sample(value, SampleFormat::default()).unwrap()
}

fn passes(expression: &str) -> bool {
    let filter = ContentFilter::new::<&str>(of(), expression, &[]);
    filter.unwrap_or_else(|error| panic!("{expression}: {error}")).passes(&sample(&track()), false).unwrap()
}

fn refused(expression: &str) -> (usize, String) {
    let error = ContentFilter::new(of(), expression, &["1"]).expect_err(expression);
    (error.column, error.to_string())
}

#[test]
fn conditions_hold_or_not() {
    for (expression, expected) in [
        ("id = 7", true),
        ("id <> 7", false),
        ("id != 8", true),
        ("7 = id", true),
        ("8 > id", true),
        ("id >= 7 AND id <= 7", true),
        ("id = 0x7", true),
        ("inner.deep = -5", true),
        ("inner.deep < -0x4", true),
        ("big = 18446744073709551615", true),
        ("big > 1.8e19", true),
        ("big < 18446744073709551616.0", true),
        ("name = 'alpha'", true),
        ("name = `alpha'", true),
        ("name = 'it''s'", false),
        ("name > 'alph'", true),
        ("name like 'al%'", true),
        ("name LIKE '*ph?'", true),
        ("name like 'l%'", false),
        ("name MATCH '[a-z]+'", true),
        ("name match 'alp'", false),
        ("speed = 0.1", true),
        ("speed < 1", true),
        ("height = 1.5", true),
        ("height between 1 and 2", true),
        ("height BETWEEN 1.5 AND 1.5", true),
        ("height NOT BETWEEN 1 AND 2", false),
        ("height = .15e1", true),
        ("color = 'Green'", true),
        ("color = 'geo::Color::Green'", true),
        ("color = 3", true),
        ("color > 'Red'", true),
        ("flag = TRUE", true),
        ("flag = 0", false),
        ("letter = 'q'", true),
        ("letter >= 'r'", false),
        ("list[1] = 20", true),
        ("list[9] = 20", false),
        ("id = other", true),
        ("inner.deep < id", true),
        ("letter > name", true),
        ("not id = 8", true),
        ("NOT (id = 8 OR id = 7)", false),
        ("id = 8 OR id = 9 OR name = 'alpha'", true),
        ("id = 7 OR id = 8 AND id = 9", true),
        ("(id = 7 OR id = 8) AND id = 9", false),
        ("id between 1 and 5 or id between 6 and 8", true),
        // Absent fields make neither a comparison nor its negation true.
        ("inner.more = 0", false),
        ("NOT inner.more = 0", false),
        ("inner.more = 0 OR id = 7", true),
        ("NOT (inner.more = 0 AND id = 8)", true),
        ("list[9] NOT BETWEEN 0 AND 1", false),
    ] {
        assert_eq!(passes(expression), expected, "{expression}");
    }
}

#[test]
fn mistakes_have_their_column() {
    for (expression, column, text) in [
        ("", 1, "a field, a value, NOT or `(` is expected, and the end of the expression is found"),
        ("id", 3, "an operator or BETWEEN is expected"),
        ("id =", 5, "a field or a value is expected"),
        ("id = 7 name", 8, "AND, OR or the end is expected, and `name` is found"),
        ("(id = 7", 8, "`)`, AND or OR is expected"),
        ("id = 'x", 6, "no closing quote"),
        ("id = 7 & id = 8", 8, "`&` starts no field"),
        ("id = 1x", 6, "`1x` is no number"),
        ("id = %100", 6, "`%100` is no parameter"),
        ("id = %", 6, "`%` is no parameter"),
        ("1 = 1", 1, "a comparison has a field"),
        ("id between 1 and other", 18, "a value is expected, and `other` is found"),
        ("id NOT 7", 8, "BETWEEN is expected"),
        ("id = 7 AND nam = 'x'", 12, "type Track has no member `nam`; it has id, name, speed"),
        ("inner.dep = 1", 7, "type Inner has no member `dep`"),
        ("inner = 1", 6, "Inner has parts"),
        ("id = 'x'", 6, "'x' can't be compared with field `id` of type uint32"),
        ("name = 5", 8, "5 can't be compared with field `name` of type string"),
        ("flag = 2", 8, "2 can't be compared with field `flag`"),
        ("flag < TRUE", 1, "< does not apply to field `flag` of type boolean"),
        ("letter = 'qq'", 10, "'qq' can't be compared with field `letter` of type char"),
        ("color = 'Blue'", 9, "geo::Color has no literal `Blue`; it has Red, Green"),
        ("id like '7'", 1, "LIKE does not apply to field `id` of type uint32"),
        ("'a%' like name", 1, "a field before LIKE"),
        ("name like name", 11, "a pattern after LIKE"),
        ("name match '('", 12, "the regular expression is invalid"),
        ("name = id", 1, "fields `name` and `id` have types that can't be compared: string and uint32"),
        ("id = %3", 6, "parameter %3, used in column 6: it is used, and 1 parameters are given; give 4 or more"),
        ("id = 7 ORDER BY id", 8, "AND, OR or the end is expected, and `ORDER` is found"),
    ] {
        let (found, message) = refused(expression);
        assert!(message.contains(text), "{expression}: {message}");
        assert_eq!(found, column, "{expression}: {message}");
    }
    assert!(refused(&"(".repeat(100)).1.contains("64 levels deep"));
    assert!(refused(&"NOT ".repeat(100)).1.contains("64 levels deep"));
    assert!(refused(&format!("id = {}", "7".repeat(1 << 16))).1.contains("the limit is 65536"));
    let error = ContentFilter::new::<&str>(of(), "id", &[]).unwrap_err();
    assert_eq!(DdsError::from(error).code(), ReturnCode::BadParameter);
}

#[test]
fn parameters_change_and_the_expression_does_not() {
    let mut filter = ContentFilter::new(of(), "id = %0 and name like %1 or color = %2", &["7", "al%", "Red"]).unwrap();
    let sample = sample(&track());
    assert!(filter.passes(&sample, false).unwrap());
    filter.set_parameters(&["8", "'al%'", "Red"]).unwrap();
    assert!(!filter.passes(&sample, false).unwrap());
    filter.set_parameters(&["8", "x", "'Green'"]).unwrap();
    assert!(filter.passes(&sample, false).unwrap());
    let error = filter.set_parameters(&["8", "x", "Blue"]).unwrap_err();
    let expected = "parameter %2, used in column 37: geo::Color has no literal `Blue`; it has Red, Green";
    assert_eq!(error.to_string(), expected);
    assert_eq!(filter.parameters(), ["8", "x", "'Green'"]);
    assert!(filter.set_parameters(&["seven", "x", "Red"]).unwrap_err().to_string().contains("'seven' can't be"));
    assert!(filter.set_parameters(&["1"; 101]).unwrap_err().to_string().contains("at most 100"));
    assert_eq!(filter.expression(), "id = %0 and name like %1 or color = %2");
    let flag = ContentFilter::new(of(), "flag = %0", &["true"]).unwrap();
    assert!(flag.passes(&sample, false).unwrap());
}

#[test]
fn a_key_passes_by_its_own_fields() {
    let key = encode_key_sample(&track(), SampleFormat::default()).unwrap();
    let filter = ContentFilter::new::<&str>(of(), "id = 7", &[]).unwrap();
    assert!(filter.is_key_only() && filter.passes(&key, true).unwrap());
    let filter = ContentFilter::new::<&str>(of(), "id = 7 and name = 'alpha'", &[]).unwrap();
    assert!(!filter.is_key_only() && !filter.passes(&key, true).unwrap());
}

#[test]
fn queries_have_an_order() {
    let names = |expression: &str, values: &[Track]| {
        let query = Query::new::<&str>(of(), expression, &[]).unwrap();
        let mut found: Vec<_> = values
            .iter()
            .filter_map(|value| Some((query.select(&sample(value), false).unwrap()?, value.name.clone())))
            .collect();
        found.sort_by(|left, right| left.0.cmp(&right.0));
        found.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ")
    };
    let of =
        |name: &str, height, more| Track { name: name.to_owned(), height, inner: Inner { deep: 0, more }, ..track() };
    let values = [of("c", 1.0, Some(2)), of("a", f64::NAN, None), of("b", -1.0, Some(1)), of("d", -1.0, None)];
    assert_eq!(names("", &values), "c a b d");
    assert_eq!(names("ORDER BY name", &values), "a b c d");
    assert_eq!(names("order by height, name", &values), "b d c a");
    assert_eq!(names("order by inner.more, name", &values), "a d b c");
    assert_eq!(names("name <> 'c' ORDER BY height,name", &values), "b d a");
    assert!(Query::new::<&str>(Arc::new(DynamicType::new(Track::description())), "order by", &[]).is_err());
    let error = Query::new::<&str>(Arc::new(DynamicType::new(Track::description())), "id = 1 order by list", &[]);
    assert_eq!(error.unwrap_err().column, 21);
}

/// A generator of numbers (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

fn chance() -> Chance {
    let seed = std::env::var("DDS_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    println!("DDS_SEED={seed}");
    Chance(seed | 1)
}

#[test]
fn random_texts_are_parsed_or_refused() {
    let mut chance = chance();
    let parts = [
        "id",
        "name",
        "height",
        "inner.more",
        "list[2]",
        "color",
        "flag",
        "letter",
        "=",
        "<",
        ">=",
        "<>",
        "like",
        "match",
        "between",
        "and",
        "or",
        "not",
        "(",
        ")",
        "7",
        "-1.5",
        "0x1F",
        "'a%'",
        "'q'",
        "TRUE",
        "%0",
        "%1",
        "'",
        "..",
        "%",
        "order",
        "by",
        ",",
        "\u{e4}",
        "1e999",
        "[",
    ];
    let (mut made, sample) = (0, sample(&track()));
    for _ in 0..60_000 {
        let mut text = vec![chance.pick(&parts[..8]), chance.pick(&parts[8..14]), chance.pick(&parts[20..28])];
        for _ in 0..chance.below(4) {
            text.insert(chance.below(text.len()), chance.pick(&parts));
        }
        let text = text.join(chance.pick(&[" ", " ", " ", ""]));
        match ContentFilter::new(of(), &text, &["7", "'x'"]) {
            Ok(filter) => {
                filter.passes(&sample, false).unwrap();
                made += 1;
            }
            Err(error) => assert!(error.column <= text.chars().count() + 1, "{text}: {error}"),
        }
        drop(Query::new(of(), &text, &["7", "'x'"]));
    }
    assert!(made > 500, "{made} made");
}

/// A condition over two integers, its text, and its value by Rust's own operators.
fn random_condition(chance: &mut Chance, depth: usize, id: i64, other: i64) -> (String, bool) {
    if depth == 0 || chance.below(3) == 0 {
        let (name, value) = if chance.below(2) == 0 { ("id", id) } else { ("other", other) };
        let constant = chance.below(6) as i64;
        let (low, high) = (chance.below(6) as i64, chance.below(6) as i64);
        return match chance.below(9) {
            0 => (format!("{name} = {constant}"), value == constant),
            1 => (format!("{name} <> {constant}"), value != constant),
            2 => (format!("{name} < {constant}.5"), value <= constant),
            3 => (format!("{constant} <= {name}"), constant <= value),
            4 => (format!("{name} > {constant}"), value > constant),
            5 => (format!("{name} between {low} and {high}"), low <= value && value <= high),
            6 => (format!("{name} not between {low} and {high}"), !(low <= value && value <= high)),
            7 => ("id < other".to_owned(), id < other),
            _ => (format!("{name} >= {constant}"), value >= constant),
        };
    }
    let (left, left_holds) = random_condition(chance, depth - 1, id, other);
    let (right, right_holds) = random_condition(chance, depth - 1, id, other);
    match chance.below(3) {
        0 => (format!("({left}) and ({right})"), left_holds && right_holds),
        1 => (format!("({left}) or ({right})"), left_holds || right_holds),
        _ => (format!("not ({left})"), !left_holds),
    }
}

#[test]
fn random_conditions_have_the_value_of_their_definition() {
    let mut chance = chance();
    for _ in 0..5_000 {
        let (id, other) = (chance.below(6), chance.below(6));
        let value = Track { id: id as u32, other: other as i32, ..track() };
        let (text, expected) = random_condition(&mut chance, 4, id as i64, other as i64);
        let filter = ContentFilter::new::<&str>(of(), &text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filter.passes(&sample(&value), false), Ok(expected), "{text} id {id} other {other}");
    }
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct Words {
    order: i32,
    by: i32,
    and: i32,
    or: i32,
    not: i32,
    between: i32,
    like: String,
    #[dds(name = "Match")]
    matches: String,
}

#[test]
fn fields_may_have_the_names_of_keywords() {
    let of = Arc::new(DynamicType::new(Words::description()));
    let words = Words { order: 1, by: 2, and: 3, or: 4, not: 5, between: 6, like: "x".into(), matches: "y".into() };
    let sample = encode_sample(&words, SampleFormat::default()).unwrap();
    for (expression, expected) in [
        ("order = 1 and by = 2", true),
        ("and = 3 AND or = 4 OR or = 5", true),
        ("not = 5", true),
        ("not not = 5", false),
        ("not between 4 and 5", true),
        ("NOT between = 6", false),
        ("not between between 5 and 7", false),
        ("between not between 1 and 3", true),
        ("between between 6 and 7 and (order < by)", true),
        ("like like '_' and Match match 'y'", true),
        ("not like like 'z'", true),
        ("order < not and (by > order)", true),
        ("by = or or or = and", false),
    ] {
        let filter = ContentFilter::new::<&str>(of.clone(), expression, &[]);
        let filter = filter.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(filter.passes(&sample, false), Ok(expected), "{expression}");
    }
    for (expression, fields) in [("order by order", 1), ("order > 3 order by by, order, like", 3), ("order = 1", 0)] {
        let query = Query::new::<&str>(of.clone(), expression, &[]).unwrap();
        assert_eq!(query.is_ordered(), fields > 0, "{expression}");
    }
    for (expression, column) in [("order = 1 and and by = 2", 15), ("order = and by = 2", 9), ("order", 6)] {
        let error = ContentFilter::new::<&str>(of.clone(), expression, &[]).unwrap_err();
        assert_eq!(error.column, column, "{expression}: {error}");
    }
}

#[test]
fn a_match_is_of_the_whole_text() {
    let matches = |pattern: &str| {
        ContentFilter::new(of(), "name MATCH %0", &[pattern])
            .map(|filter| filter.passes(&sample(&track()), false).unwrap())
            .map_err(|error| error.parameter)
    };
    // Without a group around it, each alternative would have one anchor only.
    for (pattern, expected) in [
        ("alp|pha", Ok(false)),
        ("alp|alpha", Ok(true)),
        ("alpha)|(x", Err(Some(0))),
        ("(?x) al pha # the name", Ok(true)),
        ("(?x) al # pha", Ok(false)),
        ("(?x) al #)|(pha", Ok(false)),
        ("(?m)^alpha$", Ok(true)),
        ("(alpha", Err(Some(0))),
    ] {
        assert_eq!(matches(pattern), expected, "{pattern}");
    }
}
