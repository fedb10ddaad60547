//! Types as IDL.
#![allow(dead_code, reason = "the types are described only")]
#[path = "corpus/types_0.rs"]
mod types_0;
#[path = "corpus/types_1.rs"]
mod types_1;

use spindle_xcdr::*;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Sees each type of the corpus with its value.
pub(crate) trait Visitor {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T);
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "paint::Color", bit_bound = 8)]
enum Color {
    Red = 1,
    #[dds(default)]
    Green = 3,
    Blue = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(bitmask, bit_bound = 10, flags(READY = 0, ACTIVE = 9))]
struct Flags(u16);

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, final, name = "paint::Paint", discriminator = Color)]
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
    #[dds(hashid = "shade")]
    tint: Color,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable, name = "deep::Everything")]
struct Everything {
    #[dds(key)]
    id: i32,
    #[dds(key, bound = 8)]
    name: String,
    wide: WideString,
    inner: Inner,
    grid: [[i64; 2]; 3],
    names: [String; 2],
    pairs: Vec<[u8; 4]>,
    map: BTreeMap<String, [f32; 3]>,
    optional: Option<u64>,
    flags: Flags,
    paints: Vec<Paint>,
    shape: Shape,
    #[dds(must_understand)]
    boxed: Box<Inner>,
    letter: Char8,
    #[dds(octet)]
    bytes: Vec<u8>,
    r#struct: bool,
}

const EVERYTHING: &str = "\
module paint {
    @bit_bound(8) enum Color {
        @value(1) Red,
        @value(3) @default_literal Green,
        Blue
    };
};

module deep {
    @mutable struct Inner {
        @id(7) @key uint64 seven;
        @id(3) @key int8 three;
        @optional string note;
        @hashid paint::Color color;
        @hashid(\"shade\") paint::Color tint;
    };

    typedef uint8 Everything_pairs_element[4];

    typedef float Everything_map_value[3];
};

@bit_bound(10) bitmask Flags {
    READY,
    @position(9) ACTIVE
};

module paint {
    @final union Paint switch (::paint::Color) {
        case ::paint::Red: double Thick;
        default: string Other;
    };
};

@appendable union Shape switch (int16) {
    case 1: case 2: sequence<uint16> Sides;
    case 4: @id(2) string<3> Name;
};

module deep {
    @appendable struct Everything {
        @key int32 id;
        @key string<8> name;
        wstring wide;
        deep::Inner inner;
        int64 grid[3][2];
        string names[2];
        sequence<deep::Everything_pairs_element> pairs;
        map<string, deep::Everything_map_value> _map;
        @optional uint64 optional;
        ::Flags flags;
        sequence<paint::Paint> paints;
        ::Shape shape;
        @must_understand @external deep::Inner boxed;
        char letter;
        sequence<octet> bytes;
        boolean _struct;
    };
};
";

#[test]
fn a_type_is_written_after_the_types_that_it_reaches() {
    assert_eq!(Everything::description().to_idl(), EVERYTHING);
}

#[test]
fn a_type_from_its_type_objects_is_written_alike() {
    let objects = TypeObjects::of(&Everything::description()).unwrap();
    let all = objects.all(TypeObjectKind::Complete).iter().cloned().collect();
    let read = TypeObjects::description(objects.hash(TypeObjectKind::Complete), &all).unwrap();
    assert_eq!(read.to_idl(), Everything::description().to_idl());
}

/// The types of the corpus that were written.
struct Written(u32);

impl Visitor for Written {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, _value: T) {
        let description = T::description();
        let idl = description.to_idl();
        assert_eq!(idl.matches('{').count(), idl.matches('}').count(), "{idl}");
        for named in &description.types {
            let simple = named.name.rsplit("::").next().unwrap();
            let defined = ["struct", "union", "enum", "bitmask"].map(|kind| format!("{kind} {simple} "));
            assert_eq!(defined.iter().map(|own| idl.matches(own).count()).sum::<usize>(), 1, "{simple}:\n{idl}");
        }
        if let Ok(objects) = TypeObjects::of(&description) {
            let all = objects.all(TypeObjectKind::Complete).iter().cloned().collect();
            let read = TypeObjects::description(objects.hash(TypeObjectKind::Complete), &all).unwrap();
            assert_eq!(read.to_idl().len(), idl.len(), "{idl}\n{}", read.to_idl());
        }
        self.0 += 1;
    }
}

#[test]
fn each_type_of_the_corpus_is_defined_once() {
    let mut written = Written(0);
    types_0::visit(&mut written);
    types_1::visit(&mut written);
    assert!(written.0 > 50, "{} types", written.0);
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(appendable)]
struct Tree {
    value: i32,
    children: Vec<Tree>,
}

#[test]
fn a_recursive_type_has_a_forward_declaration() {
    let expected = "\
struct Tree;

@appendable struct Tree {
    int32 value;
    sequence<Tree> children;
};
";
    assert_eq!(Tree::description().to_idl(), expected);
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, nested, autoid = "hash")]
struct Hashed {
    first: u16,
    #[dds(id = 5)]
    second: u16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(union, appendable, discriminator = bool)]
enum Maybe {
    #[dds(case = true)]
    Yes(Hashed),
    #[dds(case = false)]
    No(String),
}

#[test]
fn identifiers_that_are_hashes_need_no_annotation() {
    let expected = "\
@final @nested @autoid(HASH) struct Hashed {
    uint16 first;
    @id(5) uint16 second;
};

@appendable union Maybe switch (boolean) {
    case TRUE: Hashed Yes;
    case FALSE: string No;
};
";
    assert_eq!(Maybe::description().to_idl(), expected);
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(final, name = "Shade")]
struct Shade {
    depth: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(mutable)]
struct Shaded {
    #[dds(key)]
    shade: Shade,
    #[dds(hashid)]
    other: Shade,
    #[dds(id = 7)]
    last: Shade,
}

#[test]
fn an_annotation_before_a_global_name_is_closed() {
    let expected = "\
@final struct Shade {
    uint8 depth;
};

@mutable struct Shaded {
    @key(TRUE) ::Shade shade;
    @hashid(\"\") ::Shade other;
    @id(7) ::Shade last;
};
";
    assert_eq!(Shaded::description().to_idl(), expected);
}

#[test]
fn a_type_without_a_name_gets_one() {
    let inner = DataType::array(DataType::Primitive(PrimitiveKind::Int16), 2);
    let root = DataType::Sequence(Box::new(inner), 9);
    let description = TypeDescription { root, types: Vec::new() };
    assert_eq!(description.to_idl(), "typedef int16 Root_element[2];\n\ntypedef sequence<Root_element, 9> Root;\n");
}
