//! Derived types: round trips, evolution, keys, and the errors of damaged samples.
use spindle_xcdr::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(bit_bound = 8)]
enum Color {
    Red = 1,
    #[dds(default)]
    Green = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(bitmask, bit_bound = 10, flags(READY = 0, ACTIVE = 9))]
struct Flags(u16);

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, discriminator = Color)]
enum Paint {
    #[dds(case = Color::Red)]
    Thick(f64),
    #[dds(default)]
    Other(Color, String),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, appendable, discriminator = i16)]
enum Shape {
    #[dds(case(1, 2))]
    Sides(i16, Vec<u16>),
    #[dds(case = 3)]
    Nothing,
    #[dds(case = 4, bound = 3)]
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(final, plain)]
#[repr(C)]
struct Point {
    x: f64,
    y: f32,
    z: [u16; 2],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(mutable, name = "deep::Inner")]
struct Inner {
    #[dds(key, id = 7)]
    seven: u64,
    #[dds(id = 3, key)]
    three: i8,
    note: Option<String>,
    #[dds(hashid)]
    color: Color,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct Everything {
    #[dds(key)]
    id: i32,
    flag: bool,
    #[dds(key, bound = 8)]
    name: String,
    wide: WideString,
    #[dds(key)]
    inner: Inner,
    points: Vec<Point>,
    grid: [[i64; 2]; 3],
    names: [String; 2],
    map: BTreeMap<String, u8>,
    optional: Option<u64>,
    absent: Option<Inner>,
    flags: Flags,
    paints: Vec<Paint>,
    shape: Shape,
    children: Vec<Everything>,
    boxed: Option<Box<Point>>,
    letter: Char8,
    wide_letter: Char16,
    #[dds(octet)]
    bytes: Vec<u8>,
}

fn everything() -> Everything {
    let inner = Inner { seven: 7, three: -3, note: Some("n".into()), color: Color::Red };
    let point = Point { x: 1.5, y: 2.5, z: [3, 4] };
    let child = Everything {
        id: -1,
        flag: true,
        name: "child".into(),
        wide: WideString("wïde🦀".into()),
        inner: inner.clone(),
        points: vec![point; 3],
        grid: [[1, 2], [3, 4], [5, -6]],
        names: ["a".into(), String::new()],
        map: BTreeMap::from([("k".into(), 9), ("l".into(), 10)]),
        optional: Some(5),
        absent: None,
        flags: Flags::READY.with(Flags::ACTIVE),
        paints: vec![Paint::Thick(0.5), Paint::Other(Color::Green, "g".into())],
        shape: Shape::Sides(2, vec![1, 2, 3]),
        children: vec![],
        boxed: Some(Box::new(point)),
        letter: Char8(b'x'),
        wide_letter: Char16(0x20ac),
        bytes: vec![1, 2, 3],
    };
    Everything { shape: Shape::Nothing, children: vec![child.clone(), child.clone()], id: 3, ..child }
}

fn formats() -> Vec<SampleFormat> {
    let mut formats = Vec::new();
    for version in [XcdrVersion::Xcdr1, XcdrVersion::Xcdr2] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for parameters in [ParameterForm::Extended, ParameterForm::Short] {
                formats.push(SampleFormat { version, order, parameters });
            }
        }
    }
    formats
}

#[test]
fn every_format_is_read_back() {
    let value = everything();
    for format in formats() {
        let sample = encode_sample(&value, format).unwrap();
        assert_eq!(sample.len() % 4, 0);
        assert_eq!(decode_sample::<Everything>(&sample).unwrap(), value, "{format:?}");
        let key = encode_key_sample(&value, format).unwrap();
        let read = decode_key_sample::<Everything>(&key).unwrap();
        assert_eq!((read.id, &read.name, read.inner.seven), (3, &value.name, 7), "{format:?}");
        assert_eq!(read.inner.color, Color::Green);
    }
}

#[test]
fn no_prefix_of_a_sample_is_read_and_none_panics() {
    for format in formats() {
        let sample = encode_sample(&everything(), format).unwrap();
        let end = sample.len() - usize::from(sample[3] & 3);
        for cut in 0..end {
            let mut prefix = sample[..cut].to_vec();
            if let Some(options) = prefix.get_mut(3) {
                *options = 0;
            }
            let error = decode_sample::<Everything>(&prefix);
            // Without sizes, XCDR1 has members of appendable types that may be missing at the end.
            assert!(error.is_err() || format.version == XcdrVersion::Xcdr1, "{format:?} {cut}");
        }
    }
}

#[derive(Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct Old {
    a: u8,
}

#[derive(Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct New {
    a: u8,
    #[dds(default = 7)]
    b: u16,
    c: Option<String>,
}

#[test]
fn appendable_types_evolve_in_both_directions() {
    let format = SampleFormat::default();
    let old = encode_sample(&Old { a: 1 }, format).unwrap();
    assert_eq!(decode_sample::<New>(&old).unwrap(), New { a: 1, b: 7, c: None });
    let new = encode_sample(&New { a: 2, b: 3, c: Some("c".into()) }, format).unwrap();
    assert_eq!(decode_sample::<Old>(&new).unwrap(), Old { a: 2 });
}

#[derive(Debug, PartialEq, DdsType)]
#[dds(mutable)]
struct First {
    #[dds(id = 1)]
    a: u8,
    #[dds(id = 2)]
    b: String,
}

#[derive(Debug, PartialEq, DdsType)]
#[dds(mutable)]
struct Second {
    #[dds(id = 2)]
    b: String,
    #[dds(id = 9, must_understand)]
    c: u32,
}

#[test]
fn mutable_types_skip_what_they_lack_unless_it_must_be_understood() {
    for format in formats() {
        let first = encode_sample(&First { a: 1, b: "b".into() }, format).unwrap();
        assert_eq!(decode_sample::<Second>(&first).unwrap(), Second { b: "b".into(), c: 0 });
        let second = encode_sample(&Second { b: "b".into(), c: 5 }, format).unwrap();
        let error = decode_sample::<First>(&second).unwrap_err();
        assert_eq!(error.fault(), &ReadFault::MustUnderstand { id: 9 });
    }
}

#[test]
fn errors_name_the_member_and_the_byte() {
    let mut value = everything();
    value.children[1].name = "too long a name".into();
    let error = encode_sample(&value, SampleFormat::default()).unwrap_err();
    assert_eq!(error.member(), "children[1].name");
    assert_eq!(error.fault(), &WriteFault::Bound { length: 15, bound: 8 });
    let sample = [0, 7, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    #[derive(Debug, DdsType)]
    #[dds(final)]
    struct Switch {
        _number: u32,
        _on: bool,
    }
    let mut wrong = sample;
    wrong[8] = 2;
    let error = decode_sample::<Switch>(&wrong[..9]).unwrap_err();
    assert_eq!((error.offset(), error.member().as_str()), (9, "_on"));
    assert_eq!(error.fault(), &ReadFault::Boolean { value: 2 });
}

#[test]
fn a_plain_value_is_lent_in_place() {
    #[repr(align(8))]
    struct Aligned([u8; 24]);
    let point = Point { x: 1.0, y: 2.0, z: [3, 4] };
    let format = SampleFormat::default();
    let sample = encode_sample(&point, format).unwrap();
    assert_eq!(&sample[4..], point.as_bytes());
    let mut place = Aligned([0; 24]);
    place.0[4..].copy_from_slice(&sample);
    assert_eq!(lend_sample::<Point>(&place.0[4..]), Ok(&point));
    let mut shifted = Aligned([0; 24]);
    shifted.0[..20].copy_from_slice(&sample);
    assert_eq!(lend_sample::<Point>(&shifted.0[..20]), Err(LendError::Alignment { alignment: 8 }));
    assert_eq!(lend_sample::<Point>(&place.0[4..20]), Err(LendError::Size { expected: 16, got: 12 }));
}

#[test]
fn a_discriminator_that_does_not_select_the_member_is_not_written() {
    let error = encode_sample(&Shape::Sides(3, vec![]), SampleFormat::default()).unwrap_err();
    assert_eq!(error.fault(), &WriteFault::Discriminator { union: "Shape".into(), value: 3 });
    let sample = encode_sample(&Shape::Name("abcd".into()), SampleFormat::default()).unwrap_err();
    assert_eq!(sample.fault(), &WriteFault::Bound { length: 4, bound: 3 });
}

#[test]
fn a_key_hash_is_the_key_in_big_endian_or_its_md5() {
    #[derive(DdsType)]
    #[dds(mutable)]
    struct Short {
        #[dds(key, id = 9)]
        a: u16,
        #[dds(key, id = 2)]
        b: u64,
        #[dds(id = 1)]
        c: String,
    }
    let short = Short { a: 1, b: 2, c: String::new() };
    let hasher = KeyHasher::<Short>::default();
    assert!(!hasher.digests());
    assert_eq!(hasher.hash(&short).unwrap().to_string(), "00000000000000020001000000000000");
    assert_eq!(short.c, "");

    #[derive(DdsType)]
    #[dds(final)]
    struct Bounded {
        #[dds(key, bound = 11)]
        name: String,
    }
    assert!(!KeyHasher::<Bounded>::default().digests());

    #[derive(DdsType)]
    #[dds(final)]
    struct Longer {
        #[dds(key, bound = 12)]
        name: String,
    }
    let hasher = KeyHasher::<Longer>::default();
    assert!(hasher.digests());
    // The MD5 of 00 00 00 02 61 00.
    assert_eq!(hasher.hash(&Longer { name: "a".into() }).unwrap().to_string(), "17bccba5c67b0746940ff9dfd356e745");
    assert_eq!(KeyHasher::<Old>::default().hash(&Old { a: 1 }).unwrap(), KeyHash::NONE);
}

#[test]
fn elements_of_arrays_of_arrays_have_bounds() {
    #[derive(Debug, DdsType)]
    #[dds(final)]
    struct Grid {
        #[dds(element_bound = 2)]
        cells: [[String; 2]; 1],
    }
    let grid = |text: &str| Grid { cells: [[String::new(), text.into()]] };
    assert!(encode_sample(&grid("ab"), SampleFormat::default()).is_ok());
    let error = encode_sample(&grid("abc"), SampleFormat::default()).unwrap_err();
    assert_eq!((error.member(), error.fault()), ("cells".into(), &WriteFault::Bound { length: 3, bound: 2 }));
}

#[test]
fn a_flag_may_be_a_keyword() {
    #[derive(Clone, Copy, Debug, PartialEq, DdsType)]
    #[dds(bitmask, flags(r#type = 1))]
    struct Kinds(u8);
    assert_eq!(Kinds::r#type, Kinds(2));
    let TypeBody::Bitmask(own) = &Kinds::description().named_root().unwrap().body.clone() else { panic!() };
    assert_eq!(own.flags, [("type".to_owned(), 1)]);
}
