//! The bytes of the corpus are those of independent implementations: Cyclone DDS, and Fast CDR.
//!
//! `corpus/spec.py` has the types, and `corpus/make.py` wrote the Rust types and the golden files.
#[path = "corpus/types_0.rs"]
mod types_0;
#[path = "corpus/types_1.rs"]
mod types_1;

use spindle_xcdr::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Sees each type of the corpus with its value.
pub(crate) trait Visitor {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T);
}

const CYCLONE: &str = include_str!("corpus/cyclonedds.golden");
const FASTCDR: &str = include_str!("corpus/fastcdr.golden");

/// The lines of a golden file by type.
type Golden = BTreeMap<&'static str, Vec<[&'static str; 4]>>;

fn golden(text: &'static str) -> Golden {
    let mut golden = Golden::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.splitn(5, ' ').collect();
        let [name, version, order, kind, bytes] = words[..] else { panic!("{line}") };
        golden.entry(name).or_default().push([version, order, kind, bytes]);
    }
    golden
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn format_of(version: &str, order: &str, parameters: ParameterForm) -> SampleFormat {
    let version = if version == "xcdr1" { XcdrVersion::Xcdr1 } else { XcdrVersion::Xcdr2 };
    let order = if order == "le" { ByteOrder::Little } else { ByteOrder::Big };
    SampleFormat { version, order, parameters }
}

/// Returns a sample without the padding at its end, and without its size in the header.
fn unpadded(mut sample: Vec<u8>) -> Vec<u8> {
    let padding = usize::from(sample[3] & 3);
    sample.truncate(sample.len() - padding);
    sample[3] = 0;
    sample
}

/// How a peer's sample differs.
#[derive(Clone, Copy, PartialEq)]
enum Difference {
    /// In the form of headers that the specification leaves open, so that it is read all the same.
    Form,
    /// In a rule that the peer reads otherwise.
    Rule,
}

/// Compares samples and keys with one peer.
struct Samples {
    golden: Golden,
    parameters: ParameterForm,
    differs: &'static [(&'static str, &'static str, Difference)],
    equal: BTreeSet<String>,
    /// The keys whose hashes have the same bytes.
    keys: u32,
    failures: Vec<String>,
}

impl Visitor for Samples {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T) {
        let name = T::NAME.trim_start_matches("corpus::");
        for [version, order, kind, bytes] in self.golden.get(name).cloned().unwrap_or_default() {
            if kind == "keyhash" {
                assert_eq!(hex(&key_bytes(&value).unwrap()), bytes, "{name}");
                self.keys += 1;
            }
            if !matches!(kind, "sample" | "key") {
                continue;
            }
            let format = format_of(version, order, self.parameters);
            let encoded = match kind {
                "sample" => encode_sample(&value, format).unwrap(),
                _ => encode_key_sample(&value, format).unwrap(),
            };
            let own = hex(&unpadded(encoded));
            let known = self.differs.iter().find(|known| (known.0, known.1) == (name, version)).map(|known| known.2);
            if known.is_some() == (own == bytes) {
                let verb = if known.is_some() { "no longer differs" } else { "differs" };
                self.failures.push(format!("{name} {version} {order} {kind} {verb}\n  peer {bytes}\n  own  {own}"));
                continue;
            }
            if known == Some(Difference::Rule) {
                continue;
            }
            if kind == "sample" {
                assert_eq!(decode_sample::<T>(&unhex(bytes)).unwrap(), value, "{name} {version} {order}");
                if known.is_none() {
                    self.equal.insert(format!("{name} {version}"));
                }
            } else {
                let key = decode_key_sample::<T>(&unhex(bytes)).unwrap();
                assert_eq!(hex(&unpadded(encode_key_sample(&key, format).unwrap())), bytes, "{name} {version} {order}");
            }
        }
    }
}

fn compare(
    text: &'static str,
    parameters: ParameterForm,
    differs: &'static [(&'static str, &'static str, Difference)],
) -> (usize, usize, u32) {
    let (golden, equal, failures) = (golden(text), BTreeSet::new(), Vec::new());
    let mut samples = Samples { golden, parameters, differs, equal, keys: 0, failures };
    types_0::visit(&mut samples);
    types_1::visit(&mut samples);
    assert!(samples.failures.is_empty(), "{}", samples.failures.join("\n"));
    let types: BTreeSet<_> = samples.equal.iter().map(|name| name.split(' ').next().unwrap().to_owned()).collect();
    (types.len(), samples.equal.len(), samples.keys)
}

#[test]
fn samples_and_keys_are_equal_to_those_of_cyclone_dds() {
    assert_eq!(compare(CYCLONE, ParameterForm::Extended, &[]), (80, 155, 10));
}

#[test]
fn samples_are_equal_to_those_of_fast_cdr() {
    use Difference::{Form, Rule};
    let differs = &[
        // Fast CDR chooses the length code of a member by the size of its value, and uses that of
        // delimited values for structures; Cyclone DDS does neither.
        ("ArrMutable", "xcdr2", Form),
        ("WideMutable", "xcdr2", Form),
        ("NestedMutable", "xcdr2", Form),
        ("Deep", "xcdr2", Form),
        ("OptionalMoreMutable", "xcdr2", Form),
        ("UnionsMutable", "xcdr2", Form),
        // Fast CDR counts enumerations and bit masks among the primitive types, so their collections
        // have no size; neither has a map whose values are primitive, whatever its keys are.
        ("EnumSeq", "xcdr2", Rule),
        ("BitmaskSeq", "xcdr2", Rule),
        ("MapString", "xcdr2", Rule),
        // After a parameter list, alignment still counts from the last parameter.
        ("NestedFinal", "xcdr1", Rule),
        ("NestedAppendable", "xcdr1", Rule),
        ("Deep", "xcdr1", Rule),
    ];
    assert_eq!(compare(FASTCDR, ParameterForm::Short, differs), (82, 154, 0));
}

fn sorted(hex: &str) -> Vec<u8> {
    let mut bytes = unhex(hex);
    bytes.sort_unstable();
    bytes
}

/// Compares type objects.
struct Objects {
    golden: Golden,
    identifiers: u32,
    information: u32,
    failures: Vec<String>,
}

impl Visitor for Objects {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, _: T) {
        let name = T::NAME.trim_start_matches("corpus::");
        let description = T::description();
        let objects = TypeObjects::of(&description).unwrap();
        let complete = objects.all(TypeObjectKind::Complete).iter().cloned().collect();
        let read = TypeObjects::description(objects.hash(TypeObjectKind::Complete), &complete).unwrap();
        let again = TypeObjects::of(&read).unwrap();
        for kind in [TypeObjectKind::Minimal, TypeObjectKind::Complete] {
            assert_eq!(again.hash(kind), objects.hash(kind), "{name}");
        }
        for [_, _, kind, bytes] in self.golden.get(name).cloned().unwrap_or_default() {
            let own = match kind {
                "minimal" => objects.identifier(TypeObjectKind::Minimal),
                "complete" => objects.identifier(TypeObjectKind::Complete),
                "minimal-object" => objects.all(TypeObjectKind::Minimal).last().unwrap().1.clone(),
                "complete-object" => objects.all(TypeObjectKind::Complete).last().unwrap().1.clone(),
                "information" => objects.information().unwrap(),
                _ => continue,
            };
            match hex(&own) == bytes {
                true if kind == "information" => self.information += 1,
                // The order of the types that a type reaches is open.
                false if kind == "information" && sorted(&hex(&own)) == sorted(bytes) => self.information += 1,
                true => self.identifiers += u32::from(!kind.ends_with("object")),
                false => self.failures.push(format!("{name} {kind}\n  peer {bytes}\n  own  {}", hex(&own))),
            }
        }
    }
}

#[test]
fn type_objects_are_equal_to_those_of_cyclone_dds() {
    let mut objects = Objects { golden: golden(CYCLONE), identifiers: 0, information: 0, failures: Vec::new() };
    types_0::visit(&mut objects);
    types_1::visit(&mut objects);
    assert!(objects.failures.is_empty(), "{}", objects.failures.join("\n"));
    assert_eq!((objects.identifiers, objects.information), (154, 77));
}

/// Takes each sample through its description: dynamic data, JSON, and back.
struct Dynamic;

impl Visitor for Dynamic {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T) {
        let dynamic = DynamicType::new(T::description());
        for (version, order) in [("xcdr1", "le"), ("xcdr1", "be"), ("xcdr2", "le"), ("xcdr2", "be")] {
            let format = format_of(version, order, ParameterForm::Extended);
            let sample = encode_sample(&value, format).unwrap();
            let read = dynamic.decode_sample(&sample).unwrap();
            assert_eq!(dynamic.encode_sample(&read, format).unwrap(), sample, "{} {version} {order}", T::NAME);
            assert_eq!(dynamic.from_json(&read.to_json()).unwrap(), read, "{}", T::NAME);
            let key = encode_key_sample(&value, format).unwrap();
            assert_eq!(dynamic.encode_key_sample(&read, format).unwrap(), key, "{}", T::NAME);
            let key_only = dynamic.decode_key_sample(&key).unwrap();
            assert_eq!(dynamic.encode_key_sample(&key_only, format).unwrap(), key, "{}", T::NAME);
            assert_eq!(dynamic.key_hash(&read), KeyHasher::default().hash(&value), "{}", T::NAME);
        }
    }
}

#[test]
fn dynamic_data_has_the_same_bytes() {
    types_0::visit(&mut Dynamic);
    types_1::visit(&mut Dynamic);
}

#[test]
fn dynamic_data_is_printed() {
    let dynamic = DynamicType::new(types_1::PointCloud::description());
    let golden = golden(CYCLONE);
    let bytes = golden["PointCloud"].iter().find(|line| line[0] == "xcdr2" && line[1] == "le").unwrap()[3];
    let value = dynamic.decode_sample(&unhex(bytes)).unwrap();
    assert_eq!(
        value.to_string(),
        "{header: {stamp: {sec: 17, nanosec: 99}, frame_id: \"map\"}, height: 3, fields: [{color: \"RED\", x: 1, y: 2, \
         shapesize: 3}], dense: true, data: x\"0102030405\"}"
    );
    assert_eq!(value.at("fields[0].color"), Some(&DynamicValue::String("RED".to_owned())));
    let stamp = value.at("header.stamp").unwrap();
    assert_eq!(format!("{stamp:#}"), "{\n    sec: 17,\n    nanosec: 99\n}");
    let json = serde_json::json!({"header": {"stamp": {"sec": "x", "nanosec": 0}, "frame_id": ""}});
    assert_eq!(
        dynamic.from_json(&json).unwrap_err().to_string(),
        "member header.stamp.sec: found the text \"x\"; expected int32"
    );
}
