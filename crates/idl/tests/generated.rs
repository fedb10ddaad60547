//! The goldens are compiled here. Their names, descriptions and bytes are those of types that are
//! written by hand.
use spindle_xcdr::*;

mod golden {
    pub(crate) mod annotations {
        include!("golden/annotations.rs");
    }
    pub(crate) mod beyond {
        include!("golden/beyond.rs");
    }
    pub(crate) mod collections {
        include!("golden/collections.rs");
    }
    pub(crate) mod constants {
        include!("golden/constants.rs");
    }
    pub(crate) mod inheritance {
        include!("golden/inheritance.rs");
    }
    pub(crate) mod masks {
        include!("golden/masks.rs");
    }
    pub(crate) mod names {
        include!("golden/names.rs");
    }
    pub(crate) mod preprocessor {
        include!("golden/preprocessor.rs");
    }
    pub(crate) mod primitives {
        include!("golden/primitives.rs");
    }
    pub(crate) mod recursive {
        include!("golden/recursive.rs");
    }
    pub(crate) mod sensor {
        include!("golden/sensor.rs");
    }
    pub(crate) mod unions {
        include!("golden/unions.rs");
    }
}

/// Types as they would be written without IDL.
mod by_hand {
    use spindle_xcdr::*;

    #[derive(Clone, Copy, Debug, PartialEq, DdsType)]
    #[dds(name = "sensor::Quality")]
    pub(crate) enum Quality {
        #[dds(name = "GOOD")]
        Good = 0,
        #[dds(name = "ESTIMATED")]
        Estimated = 4,
        #[dds(name = "BAD", default)]
        Bad = 5,
    }

    #[derive(Clone, Debug, PartialEq, DdsType)]
    #[dds(name = "sensor::Position", final, nested)]
    pub(crate) struct Position {
        pub(crate) latitude: f64,
        pub(crate) longitude: f64,
    }

    #[derive(Clone, Debug, PartialEq, DdsType)]
    #[dds(name = "sensor::Reading", appendable)]
    pub(crate) struct Reading {
        #[dds(key, name = "sensorId")]
        pub(crate) id: i32,
        pub(crate) time: u64,
        pub(crate) position: Position,
        pub(crate) quality: Quality,
        #[dds(bound = 64)]
        pub(crate) samples: Vec<f64>,
        #[dds(bound = 32)]
        pub(crate) comment: Option<String>,
    }

    #[derive(Clone, Debug, PartialEq, DdsType)]
    #[dds(name = "corpus::Hashed", mutable, autoid = "hash")]
    pub(crate) struct Hashed {
        pub(crate) color: i32,
        #[dds(hashid = "shapesize")]
        pub(crate) size: i32,
        #[dds(id = 7, must_understand, octet)]
        pub(crate) flags: u8,
        #[dds(hashid)]
        pub(crate) other: i32,
    }

    #[derive(Clone, Debug, PartialEq, DdsType)]
    #[dds(name = "corpus::Numbered", mutable)]
    pub(crate) struct Numbered {
        #[dds(id = 5)]
        pub(crate) five: i32,
        pub(crate) six: i32,
        #[dds(id = 2, key)]
        pub(crate) two: i32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, DdsType)]
    #[dds(name = "corpus::common::Level")]
    pub(crate) enum Level {
        #[dds(name = "LOW")]
        Low,
        #[dds(name = "HIGH")]
        High,
    }

    #[derive(Clone, Debug, PartialEq, DdsType)]
    #[dds(name = "corpus::inner::Last", appendable)]
    pub(crate) struct Last {
        #[dds(key)]
        pub(crate) id: i32,
        pub(crate) level_of_base: Level,
        pub(crate) text: String,
        pub(crate) level: Level,
        pub(crate) more: Option<i32>,
    }

    #[derive(Clone, Debug, PartialEq, DdsType)]
    #[dds(name = "corpus::Collections", appendable)]
    pub(crate) struct Collections {
        pub(crate) numbers: Vec<i32>,
        #[dds(bound = 5)]
        pub(crate) few: Vec<i32>,
        pub(crate) deep: Vec<Vec<i16>>,
        #[dds(bound = 2, element_bound = 8)]
        pub(crate) texts: Vec<String>,
        #[dds(bound = 4, element_bound = 16)]
        pub(crate) names: Vec<String>,
        pub(crate) row: [i32; 3],
        pub(crate) grid: [[i32; 3]; 2],
        #[dds(bound = 16)]
        pub(crate) label: String,
        #[dds(element_bound = 4)]
        pub(crate) cells: [[String; 3]; 2],
        #[dds(octet)]
        pub(crate) four: [u8; 4],
        #[dds(octet)]
        pub(crate) blob: Vec<u8>,
        #[dds(octet)]
        pub(crate) blobs: Vec<[u8; 4]>,
        pub(crate) flags: Vec<bool>,
        pub(crate) a: i32,
        pub(crate) b: [i32; 2],
        pub(crate) c: i32,
    }
}

fn formats() -> impl Iterator<Item = SampleFormat> {
    [XcdrVersion::Xcdr1, XcdrVersion::Xcdr2].into_iter().flat_map(|version| {
        [ByteOrder::Little, ByteOrder::Big].map(|order| SampleFormat { version, order, ..SampleFormat::default() })
    })
}

/// Checks that two types are one in DDS, and that two values have the same bytes and keys.
fn check<G: DdsType + PartialEq + std::fmt::Debug, H: DdsType>(generated: &G, by_hand: &H) {
    assert_eq!((G::NAME, G::EXTENSIBILITY, G::KEYED), (H::NAME, H::EXTENSIBILITY, H::KEYED));
    assert_eq!(G::description(), H::description());
    for format in formats() {
        let sample = encode_sample(generated, format).unwrap();
        assert_eq!(sample, encode_sample(by_hand, format).unwrap(), "{} {format:?}", G::NAME);
        let keys = (encode_key_sample(generated, format), encode_key_sample(by_hand, format));
        assert_eq!(keys.0.unwrap(), keys.1.unwrap(), "{} {format:?}", G::NAME);
        assert_eq!(&decode_sample::<G>(&sample).unwrap(), generated);
    }
}

#[test]
fn a_reading_has_the_bytes_of_one_by_hand() {
    use golden::sensor::sensor::*;
    let generated = Reading {
        sensor_id: 7,
        time: 99,
        position: Position { latitude: 1.5, longitude: -2.5 },
        quality: Quality::Estimated,
        samples: vec![0.5, 0.25],
        comment: Some("fine".into()),
    };
    let hand = by_hand::Reading {
        id: 7,
        time: 99,
        position: by_hand::Position { latitude: 1.5, longitude: -2.5 },
        quality: by_hand::Quality::Estimated,
        samples: vec![0.5, 0.25],
        comment: Some("fine".into()),
    };
    check(&generated, &hand);
    assert_eq!(Reading::default().quality, Quality::Bad);
    assert_ne!(by_hand::Quality::Good, by_hand::Quality::Bad);
    let too_long = Reading { samples: vec![0.0; MAX_SAMPLES as usize + 1], ..generated };
    let error = encode_sample(&too_long, SampleFormat::default()).unwrap_err();
    assert_eq!(error.fault(), &WriteFault::Bound { length: 65, bound: 64 });
}

#[test]
fn identifiers_are_those_of_types_by_hand() {
    use golden::primitives::corpus::*;
    let generated = Hashed { color: 1, size: 2, flags: 3, other: 4 };
    check(&generated, &by_hand::Hashed { color: 1, size: 2, flags: 3, other: 4 });
    check(&Numbered { five: 5, six: 6, two: 2 }, &by_hand::Numbered { five: 5, six: 6, two: 2 });
}

#[test]
fn inherited_members_come_first() {
    use golden::inheritance::corpus::{common::Level, inner::Last};
    let text = String::from("t");
    let generated = Last { id: 1, level_of_base: Level::High, text: text.clone(), level: Level::Low, more: None };
    let (low, high) = (by_hand::Level::Low, by_hand::Level::High);
    check(&generated, &by_hand::Last { id: 1, level_of_base: high, text, level: low, more: None });
}

#[test]
fn collections_have_the_bytes_of_those_by_hand() {
    use golden::collections::corpus::Collections;
    let cells = || [0, 1].map(|row| [0, 1, 2].map(|column| format!("{row}{column}")));
    let generated = Collections {
        numbers: vec![1, 2],
        few: vec![3],
        deep: vec![vec![4, 5], vec![]],
        texts: vec!["a".into()],
        names: vec!["b".into(), "c".into()],
        row: [1, 2, 3],
        grid: [[1, 2, 3], [4, 5, 6]],
        label: "label".into(),
        cells: cells(),
        four: [1, 2, 3, 4],
        blob: vec![5],
        blobs: vec![[6; 4]],
        flags: vec![true, false],
        a: 1,
        b: [2, 3],
        c: 4,
    };
    let hand = by_hand::Collections {
        numbers: vec![1, 2],
        few: vec![3],
        deep: vec![vec![4, 5], vec![]],
        texts: vec!["a".into()],
        names: vec!["b".into(), "c".into()],
        row: [1, 2, 3],
        grid: [[1, 2, 3], [4, 5, 6]],
        label: "label".into(),
        cells: cells(),
        four: [1, 2, 3, 4],
        blob: vec![5],
        blobs: vec![[6; 4]],
        flags: vec![true, false],
        a: 1,
        b: [2, 3],
        c: 4,
    };
    check(&generated, &hand);
    let mut too_long = generated;
    too_long.cells[1][2] = "12345".into();
    let error = encode_sample(&too_long, SampleFormat::default()).unwrap_err();
    assert_eq!((error.member(), error.fault()), ("cells".into(), &WriteFault::Bound { length: 5, bound: 4 }));
}

/// Checks that a value is read back.
fn read_back<T: DdsType + PartialEq + std::fmt::Debug>(value: &T) {
    for format in formats() {
        let sample = encode_sample(value, format).unwrap();
        assert_eq!(&decode_sample::<T>(&sample).unwrap(), value, "{} {format:?}", T::NAME);
    }
}

/// Checks that a value is read back, and that the type has a type object.
fn round_trip<T: DdsType + PartialEq + std::fmt::Debug>(value: &T) {
    read_back(value);
    TypeObjects::of(&T::description()).unwrap();
}

#[test]
fn all_kinds_of_types_are_read_back() {
    use golden::unions::corpus::*;
    for number in [ByNumber::A(1), ByNumber::B(-3, "b".into()), ByNumber::C(vec![1]), ByNumber::NoMember(99)] {
        let booleans = vec![ByBoolean::Yes(Box::new(number.clone())), ByBoolean::No(3)];
        let (color, character) = (ByColor::Other(Color::Blue, 5), ByCharacter::Ab(Char8(b'b'), 7));
        round_trip(&Unions { number, color, booleans, character, byte: ByOctet::One(1) });
    }
    round_trip(&Unions::default());
    assert_eq!(ByNumber::default(), ByNumber::NoMember(0));
    use golden::recursive::corpus as recursive;
    let leaf = recursive::Node { value: 2, children: vec![] };
    read_back(&recursive::Node { value: 1, children: vec![leaf] });
    let end = recursive::Chain { value: 2, next: None };
    read_back(&recursive::Chain { value: 1, next: Some(Box::new(end)) });
    read_back(&recursive::Tree::Pair(Box::default()));
    read_back(&golden::beyond::beyond::Node::default());
    round_trip(&golden::names::TopLevel::default());
    round_trip(&golden::primitives::corpus::Primitives::default());
    round_trip(&golden::inheritance::corpus::inner::Again::default());
}

#[test]
fn defaults_are_those_of_the_annotations() {
    use golden::beyond::beyond::{BOTH, Beyond, Bits, MASK, NEGATIVE, Order, WIDE, WIDE_TEXT};
    use golden::masks::corpus::{Flags, Masks};
    let masks = Masks::default();
    assert_eq!((masks.seven, masks.text.as_str(), masks.yes), (7, "a \"text\"", true));
    assert_eq!((masks.letter, masks.number), (Char8(b'x'), -2.5));
    assert_eq!((Flags::ready.0, Flags::r#type.0, Flags::active.0), (1, 16, 32));
    round_trip(&masks);
    let beyond = Beyond::default();
    assert_eq!((beyond.order, beyond.bits, beyond.wide.0.as_str()), (Order::Second, Bits(6), "w"));
    assert_eq!((BOTH, MASK, NEGATIVE), (Bits(5), 0xffff_fff0, -15));
    assert_eq!((WIDE, WIDE_TEXT), (Char16(0x20ac), "wide"));
    round_trip(&beyond);
    use golden::constants::corpus::{LETTER, NUMBER, SMALL, Sized, TEXT};
    assert_eq!((NUMBER, SMALL, LETTER, TEXT), (20, 254, Char8(b'A'), "two parts\tA"));
    assert_eq!(Sized::default().data.len(), 22);
}

#[test]
fn plain_types_are_lent() {
    use golden::primitives::corpus::Plain as PlainType;
    let value = PlainType { x: 1.0, y: 2.0, z: [3, 4], bytes: [5; 8] };
    let sample = encode_sample(&value, SampleFormat::default()).unwrap();
    assert_eq!(sample[4..], *Plain::as_bytes(&value));
}

#[test]
fn keys_and_nesting_come_from_annotations_and_pragmas() {
    use golden::annotations::corpus as annotations;
    use golden::preprocessor::corpus as preprocessor;
    let nested = |description: TypeDescription| match &description.named_root().unwrap().body {
        TypeBody::Struct(own) => own.nested,
        other => panic!("{other:?}"),
    };
    assert!(!nested(annotations::Topic::description()));
    assert!(!nested(annotations::AlsoTopic::description()));
    assert!(nested(annotations::Inside::description()));
    assert_eq!((annotations::Topic::KEYED, annotations::Inside::KEYED), (true, false));
    assert_eq!((preprocessor::Extra::KEYED, preprocessor::NoKey::KEYED), (true, false));
    use golden::beyond::beyond::{Keyed, KeyedByUnion, Middle, Order, Outer};
    assert_eq!((Outer::KEYED, Middle::KEYED, Keyed::KEYED, KeyedByUnion::KEYED), (true, true, true, true));
    let value = Outer { middle: Middle { x: 1, y: 2 }, z: 3 };
    let key = encode_key_sample(&value, SampleFormat { order: ByteOrder::Big, ..SampleFormat::default() }).unwrap();
    assert_eq!(key[4..], [0, 0, 0, 1, 0, 0, 0, 3]);
    round_trip(&KeyedByUnion { choice: Keyed::Y(Order::Second, 1), value: 2 });
    assert_eq!(preprocessor::Extra::default().data.len(), 5);
}

/// Checks that the IDL of a type, as `TypeDescription::to_idl` writes it, compiles to the same attributes of names,
/// identifiers, keys, bounds and cases as the file from which the type came.
fn assert_compiles_alike<T: DdsType>(golden: &str) {
    let idl = T::description().to_idl();
    let generated = spindle_idl::Compiler::new().compile_text("printed.idl", &idl);
    let generated = generated.unwrap_or_else(|errors| panic!("{errors}\n{idl}"));
    assert_eq!(generated.warnings(), [], "{idl}");
    let attributes = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("#[dds("));
        lines.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let (found, expected) = (attributes(generated.rust()), attributes(golden));
    let other: Vec<_> = found.difference(&expected).collect();
    assert!(other.is_empty(), "{other:#?}\n{idl}");
}

#[test]
fn a_printed_type_compiles_to_the_same() {
    const ANNOTATIONS: &str = include_str!("golden/annotations.rs");
    assert_compiles_alike::<golden::annotations::corpus::Topic>(ANNOTATIONS);
    assert_compiles_alike::<golden::annotations::corpus::AlsoTopic>(ANNOTATIONS);
    assert_compiles_alike::<golden::collections::corpus::Collections>(include_str!("golden/collections.rs"));
    assert_compiles_alike::<golden::inheritance::corpus::inner::Last>(include_str!("golden/inheritance.rs"));
    assert_compiles_alike::<golden::masks::corpus::Masks>(include_str!("golden/masks.rs"));
    assert_compiles_alike::<golden::names::TopLevel>(include_str!("golden/names.rs"));
    assert_compiles_alike::<golden::recursive::corpus::Node>(include_str!("golden/recursive.rs"));
    assert_compiles_alike::<golden::recursive::corpus::Chain>(include_str!("golden/recursive.rs"));
    assert_compiles_alike::<golden::sensor::sensor::Reading>(include_str!("golden/sensor.rs"));
    assert_compiles_alike::<golden::unions::corpus::Unions>(include_str!("golden/unions.rs"));
}
