//! Fields are read alone as they are with the whole sample: over the corpus, and over damaged samples.
//!
//! `XCDR_SEED` sets the seed, which a failure prints.
#[path = "corpus/types_0.rs"]
#[allow(dead_code)]
mod types_0;
#[path = "corpus/types_1.rs"]
#[allow(dead_code)]
mod types_1;

use spindle_xcdr::*;
use std::borrow::Cow;
use std::fmt::Debug;

/// Sees each type of the corpus with its value.
pub(crate) trait Visitor {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T);
}

/// Adds the path and the value of each field of a value.
fn leaves(
    types: &TypeDescription,
    data: &DataType,
    value: &DynamicValue,
    path: &str,
    into: &mut Vec<(String, FieldValue<'static>)>,
) {
    let mut leaf = |value| into.push((path.to_owned(), value));
    match value {
        DynamicValue::Boolean(value) => leaf(FieldValue::Boolean(*value)),
        DynamicValue::Octet(value) | DynamicValue::UInt8(value) => leaf(FieldValue::Unsigned((*value).into())),
        DynamicValue::UInt16(value) => leaf(FieldValue::Unsigned((*value).into())),
        DynamicValue::UInt32(value) => leaf(FieldValue::Unsigned((*value).into())),
        DynamicValue::UInt64(value) | DynamicValue::Bitmask(value) => leaf(FieldValue::Unsigned(*value)),
        DynamicValue::Int8(value) => leaf(FieldValue::Signed((*value).into())),
        DynamicValue::Int16(value) => leaf(FieldValue::Signed((*value).into())),
        DynamicValue::Int32(value) => leaf(FieldValue::Signed((*value).into())),
        DynamicValue::Int64(value) => leaf(FieldValue::Signed(*value)),
        DynamicValue::Float32(value) => leaf(FieldValue::Float((*value).into())),
        DynamicValue::Float64(value) => leaf(FieldValue::Float(*value)),
        DynamicValue::Char8(value) => leaf(FieldValue::Char((*value).into())),
        DynamicValue::Char16(value) => leaf(FieldValue::Char((*value).into())),
        DynamicValue::String(text) | DynamicValue::WideString(text) => {
            leaf(FieldValue::String(Cow::Owned(text.clone())))
        }
        DynamicValue::Enum(value, _) => leaf(FieldValue::Enum(*value)),
        DynamicValue::Bytes(bytes) => {
            for (index, byte) in bytes.iter().enumerate() {
                into.push((format!("{path}{}", indices(data, index)), FieldValue::Unsigned((*byte).into())));
            }
        }
        DynamicValue::Elements(elements) => {
            let (DataType::Sequence(element, _) | DataType::Array(element, _)) = data else { panic!("{data:?}") };
            for (index, value) in elements.iter().enumerate() {
                leaves(types, element, value, &format!("{path}{}", indices(data, index)), into);
            }
        }
        DynamicValue::Map(_) => {}
        DynamicValue::Struct(members) => {
            for (name, value) in members {
                let inner = member(types, data, name);
                leaves(types, &inner, value, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), into);
            }
        }
        DynamicValue::Union(_, Some((name, value))) => {
            let inner = member(types, data, name);
            leaves(types, &inner, value, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), into);
        }
        DynamicValue::Union(_, None) => {}
    }
}

fn indices(data: &DataType, index: usize) -> String {
    let DataType::Array(_, dimensions) = data else { return format!("[{index}]") };
    let mut rest = index;
    let mut text = String::new();
    for length in dimensions.iter().rev() {
        text = format!("[{}]{text}", rest % *length as usize);
        rest /= *length as usize;
    }
    text
}

fn member(types: &TypeDescription, data: &DataType, name: &str) -> DataType {
    let DataType::Named(index) = data else { panic!("{data:?}") };
    match &types.get(*index).unwrap().body {
        TypeBody::Struct(own) => own.members.iter().find(|member| member.name == name).unwrap().data.clone(),
        TypeBody::Union(own) => own.cases.iter().find(|case| case.name == name).unwrap().data.clone().unwrap(),
        _ => panic!("{name}"),
    }
}

fn formats() -> [SampleFormat; 4] {
    let of = |version, order| SampleFormat { version, order, parameters: ParameterForm::Extended };
    [
        of(XcdrVersion::Xcdr1, ByteOrder::Little),
        of(XcdrVersion::Xcdr1, ByteOrder::Big),
        of(XcdrVersion::Xcdr2, ByteOrder::Little),
        of(XcdrVersion::Xcdr2, ByteOrder::Big),
    ]
}

#[derive(Default)]
struct Compared {
    fields: usize,
}

impl Visitor for Compared {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T) {
        let dynamic = DynamicType::new(T::description());
        for format in formats() {
            let sample = encode_sample(&value, format).unwrap();
            let key = encode_key_sample(&value, format).unwrap();
            let (mut whole, mut of_key) = (Vec::new(), Vec::new());
            let types = dynamic.description();
            leaves(types, &types.root, &dynamic.decode_sample(&sample).unwrap(), "", &mut whole);
            leaves(types, &types.root, &dynamic.decode_key_sample(&key).unwrap(), "", &mut of_key);
            let mut all = FieldSet::default();
            let mut values = Vec::new();
            for (path, expected) in &whole {
                let mut one = FieldSet::default();
                assert_eq!(one.add(&dynamic, path), Ok(0), "{}", T::NAME);
                one.read(&dynamic, &sample, false, &mut values).unwrap();
                assert_eq!(values, [Some(expected.clone())], "{} {path}", T::NAME);
                let is_key = of_key.iter().any(|(own, _)| own == path);
                assert_eq!(one.is_key(), is_key, "{} {path}", T::NAME);
                one.read(&dynamic, &key, true, &mut values).unwrap();
                assert_eq!(values, [is_key.then(|| expected.clone())], "{} {path} of the key", T::NAME);
                all.add(&dynamic, path).unwrap();
                self.fields += 1;
            }
            all.read(&dynamic, &sample, false, &mut values).unwrap();
            assert_eq!(values, whole.into_iter().map(|(_, value)| Some(value)).collect::<Vec<_>>(), "{}", T::NAME);
        }
    }
}

#[test]
fn fields_of_the_corpus_are_those_of_the_whole_sample() {
    let mut compared = Compared::default();
    types_0::visit(&mut compared);
    types_1::visit(&mut compared);
    assert!(compared.fields > 1000, "{} fields", compared.fields);
}

/// A generator of numbers (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

struct Damaged {
    chance: Chance,
    read: usize,
    refused: usize,
}

impl Visitor for Damaged {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T) {
        let dynamic = DynamicType::new(T::description());
        for format in formats() {
            let sample = encode_sample(&value, format).unwrap();
            let (mut paths, mut fields) = (Vec::new(), FieldSet::default());
            let types = dynamic.description();
            leaves(types, &types.root, &dynamic.decode_sample(&sample).unwrap(), "", &mut paths);
            for (path, _) in &paths {
                fields.add(&dynamic, path).unwrap();
            }
            for _ in 0..40 {
                let mut bytes = sample.clone();
                for _ in 0..=self.chance.below(2) {
                    let at = self.chance.below(bytes.len());
                    match self.chance.below(3) {
                        0 => bytes[at] = self.chance.below(256) as u8,
                        1 => bytes[at] ^= 1 << self.chance.below(8),
                        _ => bytes.truncate(at.max(4)),
                    }
                }
                let mut values = Vec::new();
                match fields.read(&dynamic, &bytes, false, &mut values) {
                    Ok(()) => self.read += 1,
                    Err(error) => {
                        assert!(error.offset() <= bytes.len() as u64, "{error}");
                        self.refused += 1;
                    }
                }
                // A sample that decodes has these fields, too.
                if let Ok(value) = dynamic.decode_sample(&bytes) {
                    let mut expected = Vec::new();
                    leaves(types, &types.root, &value, "", &mut expected);
                    for (path, value) in expected {
                        let mut one = FieldSet::default();
                        one.add(&dynamic, &path).unwrap();
                        one.read(&dynamic, &bytes, false, &mut values).unwrap();
                        // Bytes compare NaN as equal.
                        assert_eq!(format!("{values:?}"), format!("{:?}", [Some(value)]), "{} {path}", T::NAME);
                    }
                }
            }
        }
    }
}

#[test]
fn damaged_samples_are_read_or_refused() {
    let seed = std::env::var("XCDR_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    println!("XCDR_SEED={seed}");
    let mut damaged = Damaged { chance: Chance(seed | 1), read: 0, refused: 0 };
    types_0::visit(&mut damaged);
    types_1::visit(&mut damaged);
    assert!(damaged.read > 1000 && damaged.refused > 1000, "{} read, {} refused", damaged.read, damaged.refused);
}

#[derive(Debug, DdsType)]
#[dds(appendable)]
struct Old {
    #[dds(key)]
    id: u32,
}

#[derive(Debug, DdsType)]
#[dds(appendable)]
struct New {
    #[dds(key)]
    id: u32,
    name: String,
    more: Option<i16>,
    places: [[f32; 3]; 2],
    list: Vec<u16>,
}

#[test]
fn members_that_the_writer_lacks_are_zero_and_absent_ones_are_none() {
    let dynamic = DynamicType::new(New::description());
    let mut fields = FieldSet::default();
    for path in ["name", "more", "places[1][2]", "list[0]", "id"] {
        fields.add(&dynamic, path).unwrap();
    }
    assert_eq!(fields.add(&dynamic, "more"), Ok(1));
    assert!(!fields.is_key());
    let mut values = Vec::new();
    let sample = encode_sample(&Old { id: 7 }, SampleFormat::default()).unwrap();
    fields.read(&dynamic, &sample, false, &mut values).unwrap();
    let (name, place) = (FieldValue::String("".into()), FieldValue::Float(0.0));
    assert_eq!(values, [Some(name), None, Some(place), None, Some(FieldValue::Unsigned(7))]);
}

#[test]
fn paths_without_a_field_are_refused() {
    let dynamic = DynamicType::new(New::description());
    let refused = |path: &str| FieldSet::default().add(&dynamic, path).unwrap_err();
    let expected = "field `nam`: type New has no member `nam`; it has id, name, more, places, list";
    assert_eq!(refused("nam").to_string(), expected);
    for (path, offset, text) in [
        ("", 0, "has parts"),
        ("places", 6, "float[2][3] has parts"),
        ("places[1]", 9, "float[2][3] has parts"),
        ("places[2][0]", 6, "index 2 is beyond"),
        ("places[0].x", 10, "has parts"),
        ("id.x", 3, "uint32 has no members"),
        ("id[0]", 2, "uint32 has no elements"),
        ("list[x]", 4, "names and indices"),
        ("list[1", 4, "names and indices"),
        ("id..x", 3, "names and indices"),
        ("list[4294967296]", 4, "index 4294967296 is beyond"),
    ] {
        let error = refused(path);
        assert_eq!(error.offset, offset, "{path}: {error}");
        assert!(error.to_string().contains(text), "{path}: {error}");
    }
}
