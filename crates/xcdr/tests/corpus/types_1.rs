// Written by make.py from spec.py. Do not edit.
#![cfg_attr(rustfmt, rustfmt_skip)]

use super::types_0::*;
use super::Visitor;
use spindle_xcdr::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::NestedFinal", final)]
pub(crate) struct NestedFinal {
    pub(crate) a: u8,
    pub(crate) m0: PointFinal,
    pub(crate) m1: PointAppendable,
    pub(crate) m2: PointMutable,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqOfStructsFinal", final)]
pub(crate) struct SeqOfStructsFinal {
    pub(crate) m0: Vec<PointFinal>,
    pub(crate) m1: Vec<PointAppendable>,
    pub(crate) m2: Vec<PointMutable>,
    pub(crate) b: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::NestedAppendable", appendable)]
pub(crate) struct NestedAppendable {
    pub(crate) a: u8,
    pub(crate) m0: PointFinal,
    pub(crate) m1: PointAppendable,
    pub(crate) m2: PointMutable,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqOfStructsAppendable", appendable)]
pub(crate) struct SeqOfStructsAppendable {
    pub(crate) m0: Vec<PointFinal>,
    pub(crate) m1: Vec<PointAppendable>,
    pub(crate) m2: Vec<PointMutable>,
    pub(crate) b: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::NestedMutable", mutable)]
pub(crate) struct NestedMutable {
    pub(crate) a: u8,
    pub(crate) m0: PointFinal,
    pub(crate) m1: PointAppendable,
    pub(crate) m2: PointMutable,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqOfStructsMutable", mutable)]
pub(crate) struct SeqOfStructsMutable {
    pub(crate) m0: Vec<PointFinal>,
    pub(crate) m1: Vec<PointAppendable>,
    pub(crate) m2: Vec<PointMutable>,
    pub(crate) b: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrOfStructs", final)]
pub(crate) struct ArrOfStructs {
    pub(crate) a: [PointFinal; 2],
    pub(crate) b: [PointAppendable; 2],
    pub(crate) c: [PointMutable; 1],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Deep", final)]
pub(crate) struct Deep {
    pub(crate) n: NestedMutable,
    pub(crate) s: Vec<NestedAppendable>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::OptionalFinal", final)]
pub(crate) struct OptionalFinal {
    pub(crate) a: Option<u8>,
    pub(crate) b: Option<u64>,
    pub(crate) c: Option<String>,
    pub(crate) d: Option<i32>,
    pub(crate) e: Option<PointFinal>,
    pub(crate) f: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::OptionalMoreFinal", final)]
pub(crate) struct OptionalMoreFinal {
    pub(crate) a: u8,
    pub(crate) b: Option<Vec<u16>>,
    pub(crate) c: Option<PointMutable>,
    pub(crate) d: Option<f64>,
    pub(crate) e: Option<Color>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::OptionalAppendable", appendable)]
pub(crate) struct OptionalAppendable {
    pub(crate) a: Option<u8>,
    pub(crate) b: Option<u64>,
    pub(crate) c: Option<String>,
    pub(crate) d: Option<i32>,
    pub(crate) e: Option<PointFinal>,
    pub(crate) f: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::OptionalMoreAppendable", appendable)]
pub(crate) struct OptionalMoreAppendable {
    pub(crate) a: u8,
    pub(crate) b: Option<Vec<u16>>,
    pub(crate) c: Option<PointMutable>,
    pub(crate) d: Option<f64>,
    pub(crate) e: Option<Color>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::OptionalMutable", mutable)]
pub(crate) struct OptionalMutable {
    pub(crate) a: Option<u8>,
    pub(crate) b: Option<u64>,
    pub(crate) c: Option<String>,
    pub(crate) d: Option<i32>,
    pub(crate) e: Option<PointFinal>,
    pub(crate) f: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::OptionalMoreMutable", mutable)]
pub(crate) struct OptionalMoreMutable {
    pub(crate) a: u8,
    pub(crate) b: Option<Vec<u16>>,
    pub(crate) c: Option<PointMutable>,
    pub(crate) d: Option<f64>,
    pub(crate) e: Option<Color>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionFinal", union, final, discriminator = i32)]
pub(crate) enum UnionFinal {
    #[dds(name = "a", case(1))]
    A(i32),
    #[dds(name = "b", case(2, 3))]
    B(i32, String),
    #[dds(name = "c", default)]
    C(i32, f64),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionAppendable", union, appendable, discriminator = i16)]
pub(crate) enum UnionAppendable {
    #[dds(name = "a", case(1))]
    A(u8),
    #[dds(name = "b", case(-2))]
    B(Vec<i32>),
    #[dds(name = "d", case(4))]
    D(PointMutable),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionEnum", union, final, discriminator = Color)]
pub(crate) enum UnionEnum {
    #[dds(name = "a", case(Color::Red))]
    A(u8),
    #[dds(name = "b", case(Color::Blue))]
    B(u64),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionBool", union, final, discriminator = bool)]
pub(crate) enum UnionBool {
    #[dds(name = "yes", case(true))]
    Yes(String),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionByte", union, appendable, discriminator = u8)]
pub(crate) enum UnionByte {
    #[dds(name = "a", case(0))]
    A(i16),
    #[dds(name = "rest", default)]
    Rest(u8, PointFinal),
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionsFinal", final)]
pub(crate) struct UnionsFinal {
    pub(crate) a: UnionFinal,
    pub(crate) b: UnionFinal,
    pub(crate) c: UnionFinal,
    pub(crate) d: UnionAppendable,
    pub(crate) e: UnionEnum,
    pub(crate) f: UnionBool,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::UnionsMutable", mutable)]
pub(crate) struct UnionsMutable {
    pub(crate) a: UnionFinal,
    pub(crate) d: UnionAppendable,
    pub(crate) e: UnionEnum,
    pub(crate) g: UnionByte,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqOfUnions", appendable)]
pub(crate) struct SeqOfUnions {
    pub(crate) s: Vec<UnionFinal>,
    pub(crate) t: Vec<UnionAppendable>,
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::MapPrimitive", final)]
pub(crate) struct MapPrimitive {
    pub(crate) a: u8,
    pub(crate) m: BTreeMap<i32, f64>,
    pub(crate) n: BTreeMap<i16, u8>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::MapString", appendable)]
pub(crate) struct MapString {
    pub(crate) m: BTreeMap<String, u32>,
    pub(crate) n: BTreeMap<u8, String>,
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::MapStruct", mutable)]
pub(crate) struct MapStruct {
    pub(crate) m: BTreeMap<String, PointAppendable>,
    pub(crate) n: BTreeMap<i32, i32>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::IdsMutable", mutable)]
pub(crate) struct IdsMutable {
    #[dds(id = 100)]
    pub(crate) a: u8,
    pub(crate) b: String,
    #[dds(id = 5)]
    pub(crate) c: u32,
    #[dds(id = 268435454)]
    pub(crate) d: u32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::HashIds", mutable)]
pub(crate) struct HashIds {
    #[dds(hashid)]
    pub(crate) a: u8,
    #[dds(hashid)]
    pub(crate) b: u16,
    #[dds(id = 3)]
    pub(crate) c: i64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::HashIdText", mutable)]
pub(crate) struct HashIdText {
    #[dds(hashid = "b")]
    pub(crate) a: u8,
    #[dds(hashid = "other")]
    pub(crate) b: u16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AutoidHash", mutable, autoid = "hash")]
pub(crate) struct AutoidHash {
    pub(crate) first: u8,
    pub(crate) second: String,
    pub(crate) third: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::MustUnderstand", mutable)]
pub(crate) struct MustUnderstand {
    #[dds(must_understand)]
    pub(crate) a: u8,
    pub(crate) b: String,
    #[dds(must_understand)]
    pub(crate) c: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyOne", final)]
pub(crate) struct KeyOne {
    #[dds(key)]
    pub(crate) id: i32,
    pub(crate) x: f64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyTwo", final)]
pub(crate) struct KeyTwo {
    #[dds(key)]
    pub(crate) a: u8,
    pub(crate) x: f64,
    #[dds(key)]
    pub(crate) b: u64,
    #[dds(key)]
    pub(crate) c: i16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyString", final)]
pub(crate) struct KeyString {
    pub(crate) x: u8,
    #[dds(key)]
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyBounded", final)]
pub(crate) struct KeyBounded {
    #[dds(key, bound = 8)]
    pub(crate) name: String,
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyLarge", final)]
pub(crate) struct KeyLarge {
    #[dds(key)]
    pub(crate) a: [u8; 17],
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyAppendable", appendable)]
pub(crate) struct KeyAppendable {
    pub(crate) a: u8,
    #[dds(key)]
    pub(crate) b: i64,
    #[dds(key)]
    pub(crate) c: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyMutable", mutable)]
pub(crate) struct KeyMutable {
    #[dds(key, id = 5)]
    pub(crate) a: u8,
    #[dds(id = 2)]
    pub(crate) b: i64,
    #[dds(key, id = 1)]
    pub(crate) c: u32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyNested", final)]
pub(crate) struct KeyNested {
    #[dds(key)]
    pub(crate) k: KeyTwo,
    #[dds(key)]
    pub(crate) p: PointFinal,
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyNestedAppendable", appendable)]
pub(crate) struct KeyNestedAppendable {
    #[dds(key)]
    pub(crate) k: KeyAppendable,
    pub(crate) p: PointAppendable,
    #[dds(key)]
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeyEnum", final)]
pub(crate) struct KeyEnum {
    #[dds(key)]
    pub(crate) c: Color,
    #[dds(key)]
    pub(crate) s: Small,
    #[dds(key)]
    pub(crate) f: Mask16,
    pub(crate) x: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::KeySixteen", final)]
pub(crate) struct KeySixteen {
    #[dds(key)]
    pub(crate) a: u64,
    #[dds(key)]
    pub(crate) b: u64,
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ShapeType", final)]
pub(crate) struct ShapeType {
    #[dds(key, bound = 128)]
    pub(crate) color: String,
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) shapesize: i32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::HelloWorld", final)]
pub(crate) struct HelloWorld {
    #[dds(key)]
    pub(crate) user_id: i32,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Throughput", final)]
pub(crate) struct Throughput {
    pub(crate) count: u64,
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Time", final)]
pub(crate) struct Time {
    pub(crate) sec: i32,
    pub(crate) nanosec: u32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Header", final)]
pub(crate) struct Header {
    pub(crate) stamp: Time,
    pub(crate) frame_id: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::PointCloud", appendable)]
pub(crate) struct PointCloud {
    pub(crate) header: Header,
    pub(crate) height: u32,
    #[dds(bound = 10)]
    pub(crate) fields: Vec<ShapeType>,
    pub(crate) dense: bool,
    pub(crate) data: Vec<u8>,
}

/// Shows each structure with its value.
pub(crate) fn visit(visitor: &mut impl Visitor) {
    visitor.case(NestedFinal { a: 3, m0: PointFinal { x: 1, y: 2.5 }, m1: PointAppendable { x: 3, y: 4.5 }, m2: PointMutable { x: 5, y: 6.5 }, b: 7 });
    visitor.case(SeqOfStructsFinal { m0: vec![PointFinal { x: 1, y: 2.5 }, PointFinal { x: 3, y: 4.5 }], m1: vec![PointAppendable { x: 5, y: 6.5 }], m2: vec![PointMutable { x: 7, y: 8.5 }, PointMutable { x: 9, y: 10.5 }], b: 7 });
    visitor.case(NestedAppendable { a: 3, m0: PointFinal { x: 1, y: 2.5 }, m1: PointAppendable { x: 3, y: 4.5 }, m2: PointMutable { x: 5, y: 6.5 }, b: 7 });
    visitor.case(SeqOfStructsAppendable { m0: vec![PointFinal { x: 1, y: 2.5 }, PointFinal { x: 3, y: 4.5 }], m1: vec![PointAppendable { x: 5, y: 6.5 }], m2: vec![PointMutable { x: 7, y: 8.5 }, PointMutable { x: 9, y: 10.5 }], b: 7 });
    visitor.case(NestedMutable { a: 3, m0: PointFinal { x: 1, y: 2.5 }, m1: PointAppendable { x: 3, y: 4.5 }, m2: PointMutable { x: 5, y: 6.5 }, b: 7 });
    visitor.case(SeqOfStructsMutable { m0: vec![PointFinal { x: 1, y: 2.5 }, PointFinal { x: 3, y: 4.5 }], m1: vec![PointAppendable { x: 5, y: 6.5 }], m2: vec![PointMutable { x: 7, y: 8.5 }, PointMutable { x: 9, y: 10.5 }], b: 7 });
    visitor.case(ArrOfStructs { a: [PointFinal { x: 1, y: 2.5 }, PointFinal { x: 3, y: 4.5 }], b: [PointAppendable { x: 5, y: 6.5 }, PointAppendable { x: 0, y: 0.0 }], c: [PointMutable { x: 7, y: 8.5 }] });
    visitor.case(Deep { n: NestedMutable { a: 3, m0: PointFinal { x: 1, y: 2.5 }, m1: PointAppendable { x: 3, y: 4.5 }, m2: PointMutable { x: 5, y: 6.5 }, b: 7 }, s: vec![NestedAppendable { a: 4, m0: PointFinal { x: 1, y: 2.5 }, m1: PointAppendable { x: 3, y: 4.5 }, m2: PointMutable { x: 5, y: 6.5 }, b: 8 }] });
    visitor.case(OptionalFinal { a: Some(1), b: Some(2), c: None, d: None, e: Some(PointFinal { x: 1, y: 2.5 }), f: 3 });
    visitor.case(OptionalMoreFinal { a: 1, b: Some(vec![1, 2, 3]), c: Some(PointMutable { x: 4, y: 5.5 }), d: Some(6.5), e: Some(Color::Blue) });
    visitor.case(OptionalAppendable { a: Some(1), b: Some(2), c: None, d: None, e: Some(PointFinal { x: 1, y: 2.5 }), f: 3 });
    visitor.case(OptionalMoreAppendable { a: 1, b: Some(vec![1, 2, 3]), c: Some(PointMutable { x: 4, y: 5.5 }), d: Some(6.5), e: Some(Color::Blue) });
    visitor.case(OptionalMutable { a: Some(1), b: Some(2), c: None, d: None, e: Some(PointFinal { x: 1, y: 2.5 }), f: 3 });
    visitor.case(OptionalMoreMutable { a: 1, b: Some(vec![1, 2, 3]), c: Some(PointMutable { x: 4, y: 5.5 }), d: Some(6.5), e: Some(Color::Blue) });
    visitor.case(UnionsFinal { a: UnionFinal::A(7), b: UnionFinal::B(3, "three".to_owned()), c: UnionFinal::C(9, 1.5), d: UnionAppendable::B(vec![1, 2]), e: UnionEnum::B(5), f: UnionBool::Yes("y".to_owned()) });
    visitor.case(UnionsMutable { a: UnionFinal::B(2, "two".to_owned()), d: UnionAppendable::D(PointMutable { x: 1, y: 2.5 }), e: UnionEnum::A(5), g: UnionByte::Rest(9, PointFinal { x: 1, y: 2.5 }) });
    visitor.case(SeqOfUnions { s: vec![UnionFinal::A(7), UnionFinal::B(2, "two".to_owned())], t: vec![UnionAppendable::A(9), UnionAppendable::B(vec![])], x: 3 });
    visitor.case(MapPrimitive { a: 1, m: BTreeMap::from([(1, 0.5), (2, 1.5)]), n: BTreeMap::from([(-1, 3)]) });
    visitor.case(MapString { m: BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]), n: BTreeMap::from([(4, "four".to_owned())]), x: 3 });
    visitor.case(MapStruct { m: BTreeMap::from([("p".to_owned(), PointAppendable { x: 1, y: 2.5 })]), n: BTreeMap::from([(1, 2)]) });
    visitor.case(IdsMutable { a: 1, b: "b".to_owned(), c: 2, d: 3 });
    visitor.case(HashIds { a: 1, b: 2, c: 3 });
    visitor.case(HashIdText { a: 1, b: 2 });
    visitor.case(AutoidHash { first: 1, second: "x".to_owned(), third: Some(3) });
    visitor.case(MustUnderstand { a: 1, b: "b".to_owned(), c: Some(3) });
    visitor.case(KeyOne { id: 7, x: 1.5 });
    visitor.case(KeyTwo { a: 1, x: 1.5, b: 2, c: 3 });
    visitor.case(KeyString { x: 1, name: "a name".to_owned() });
    visitor.case(KeyBounded { name: "short".to_owned(), x: 1 });
    visitor.case(KeyLarge { a: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], x: 1 });
    visitor.case(KeyAppendable { a: 1, b: -2, c: "c".to_owned() });
    visitor.case(KeyMutable { a: 1, b: -2, c: 3 });
    visitor.case(KeyNested { k: KeyTwo { a: 1, x: 1.5, b: 2, c: 3 }, p: PointFinal { x: 1, y: 2.5 }, x: 9 });
    visitor.case(KeyNestedAppendable { k: KeyAppendable { a: 1, b: -2, c: "c".to_owned() }, p: PointAppendable { x: 1, y: 2.5 }, x: 9 });
    visitor.case(KeyEnum { c: Color::Blue, s: Small::Two, f: Mask16::B, x: 9 });
    visitor.case(KeySixteen { a: 1, b: 2, x: 3 });
    visitor.case(ShapeType { color: "BLUE".to_owned(), x: 10, y: 20, shapesize: 30 });
    visitor.case(HelloWorld { user_id: 1, message: "Hello World".to_owned() });
    visitor.case(Throughput { count: 5, payload: vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19] });
    visitor.case(Time { sec: 17, nanosec: 99 });
    visitor.case(Header { stamp: Time { sec: 17, nanosec: 99 }, frame_id: "map".to_owned() });
    visitor.case(PointCloud { header: Header { stamp: Time { sec: 17, nanosec: 99 }, frame_id: "map".to_owned() }, height: 3, fields: vec![ShapeType { color: "RED".to_owned(), x: 1, y: 2, shapesize: 3 }], dense: true, data: vec![1, 2, 3, 4, 5] });
}
