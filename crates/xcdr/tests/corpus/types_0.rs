// Written by make.py from spec.py. Do not edit.
#![cfg_attr(rustfmt, rustfmt_skip)]

use super::Visitor;
use spindle_xcdr::*;

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AllPrimitivesFinal", final)]
pub(crate) struct AllPrimitivesFinal {
    pub(crate) b: bool,
    pub(crate) o: u8,
    pub(crate) i8: i8,
    pub(crate) i16: i16,
    pub(crate) u16: u16,
    pub(crate) i32: i32,
    pub(crate) u32: u32,
    pub(crate) i64: i64,
    pub(crate) u64: u64,
    pub(crate) f32: f32,
    pub(crate) f64: f64,
    pub(crate) c: Char8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AllReversedFinal", final)]
pub(crate) struct AllReversedFinal {
    pub(crate) c: Char8,
    pub(crate) f64: f64,
    pub(crate) f32: f32,
    pub(crate) u64: u64,
    pub(crate) i64: i64,
    pub(crate) u32: u32,
    pub(crate) i32: i32,
    pub(crate) u16: u16,
    pub(crate) i16: i16,
    pub(crate) i8: i8,
    pub(crate) o: u8,
    pub(crate) b: bool,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AllPrimitivesAppendable", appendable)]
pub(crate) struct AllPrimitivesAppendable {
    pub(crate) b: bool,
    pub(crate) o: u8,
    pub(crate) i8: i8,
    pub(crate) i16: i16,
    pub(crate) u16: u16,
    pub(crate) i32: i32,
    pub(crate) u32: u32,
    pub(crate) i64: i64,
    pub(crate) u64: u64,
    pub(crate) f32: f32,
    pub(crate) f64: f64,
    pub(crate) c: Char8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AllReversedAppendable", appendable)]
pub(crate) struct AllReversedAppendable {
    pub(crate) c: Char8,
    pub(crate) f64: f64,
    pub(crate) f32: f32,
    pub(crate) u64: u64,
    pub(crate) i64: i64,
    pub(crate) u32: u32,
    pub(crate) i32: i32,
    pub(crate) u16: u16,
    pub(crate) i16: i16,
    pub(crate) i8: i8,
    pub(crate) o: u8,
    pub(crate) b: bool,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AllPrimitivesMutable", mutable)]
pub(crate) struct AllPrimitivesMutable {
    pub(crate) b: bool,
    pub(crate) o: u8,
    pub(crate) i8: i8,
    pub(crate) i16: i16,
    pub(crate) u16: u16,
    pub(crate) i32: i32,
    pub(crate) u32: u32,
    pub(crate) i64: i64,
    pub(crate) u64: u64,
    pub(crate) f32: f32,
    pub(crate) f64: f64,
    pub(crate) c: Char8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::AllReversedMutable", mutable)]
pub(crate) struct AllReversedMutable {
    pub(crate) c: Char8,
    pub(crate) f64: f64,
    pub(crate) f32: f32,
    pub(crate) u64: u64,
    pub(crate) i64: i64,
    pub(crate) u32: u32,
    pub(crate) i32: i32,
    pub(crate) u16: u16,
    pub(crate) i16: i16,
    pub(crate) i8: i8,
    pub(crate) o: u8,
    pub(crate) b: bool,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::GapBool", final)]
pub(crate) struct GapBool {
    pub(crate) a: u8,
    pub(crate) x: bool,
    pub(crate) b: u8,
    pub(crate) y: bool,
    pub(crate) z: bool,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::GapU8", final)]
pub(crate) struct GapU8 {
    pub(crate) a: u8,
    pub(crate) x: u8,
    pub(crate) b: u8,
    pub(crate) y: u8,
    pub(crate) z: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::GapI16", final)]
pub(crate) struct GapI16 {
    pub(crate) a: u8,
    pub(crate) x: i16,
    pub(crate) b: u8,
    pub(crate) y: i16,
    pub(crate) z: i16,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::GapI32", final)]
pub(crate) struct GapI32 {
    pub(crate) a: u8,
    pub(crate) x: i32,
    pub(crate) b: u8,
    pub(crate) y: i32,
    pub(crate) z: i32,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::GapU64", final)]
pub(crate) struct GapU64 {
    pub(crate) a: u8,
    pub(crate) x: u64,
    pub(crate) b: u8,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::GapF64", final)]
pub(crate) struct GapF64 {
    pub(crate) a: u8,
    pub(crate) x: f64,
    pub(crate) b: u8,
    pub(crate) y: f64,
    pub(crate) z: f64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::StringFinal", final)]
pub(crate) struct StringFinal {
    pub(crate) a: u8,
    pub(crate) s: String,
    pub(crate) b: u64,
    #[dds(bound = 8)]
    pub(crate) t: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::StringAppendable", appendable)]
pub(crate) struct StringAppendable {
    pub(crate) s: String,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::StringMutable", mutable)]
pub(crate) struct StringMutable {
    pub(crate) s: String,
    pub(crate) b: u64,
    #[dds(bound = 16)]
    pub(crate) t: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::WideFinal", final)]
pub(crate) struct WideFinal {
    pub(crate) a: u8,
    pub(crate) s: WideString,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::WideMutable", mutable)]
pub(crate) struct WideMutable {
    pub(crate) s: WideString,
    pub(crate) b: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqPrimitives", final)]
pub(crate) struct SeqPrimitives {
    pub(crate) a: Vec<u8>,
    pub(crate) b: Vec<i16>,
    pub(crate) c: Vec<i32>,
    pub(crate) d: Vec<i64>,
    #[dds(bound = 4)]
    pub(crate) e: Vec<f64>,
    pub(crate) f: Vec<bool>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqMutable", mutable)]
pub(crate) struct SeqMutable {
    pub(crate) a: Vec<u8>,
    pub(crate) b: Vec<i16>,
    pub(crate) c: Vec<i32>,
    pub(crate) d: Vec<u64>,
    pub(crate) e: Vec<f32>,
    pub(crate) f: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqStrings", final)]
pub(crate) struct SeqStrings {
    pub(crate) a: u8,
    pub(crate) s: Vec<String>,
    pub(crate) b: u8,
    #[dds(bound = 3, element_bound = 4)]
    pub(crate) t: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqSeq", appendable)]
pub(crate) struct SeqSeq {
    pub(crate) s: Vec<Vec<i32>>,
    pub(crate) t: Vec<Vec<String>>,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqEmpty", mutable)]
pub(crate) struct SeqEmpty {
    pub(crate) s: Vec<Vec<i32>>,
    pub(crate) t: Vec<u64>,
    pub(crate) u: String,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqChar", final)]
pub(crate) struct SeqChar {
    pub(crate) s: Vec<Char8>,
    pub(crate) a: [Char8; 3],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrPrimitives", final)]
pub(crate) struct ArrPrimitives {
    pub(crate) a: [u8; 3],
    pub(crate) b: [i16; 2],
    pub(crate) c: [i32; 1],
    pub(crate) d: [i64; 2],
    pub(crate) e: [f64; 2],
    pub(crate) f: [bool; 2],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrMutable", mutable)]
pub(crate) struct ArrMutable {
    pub(crate) a: [u8; 3],
    pub(crate) b: [i16; 2],
    pub(crate) d: [i64; 2],
    pub(crate) s: [String; 2],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrStrings", final)]
pub(crate) struct ArrStrings {
    pub(crate) x: u8,
    pub(crate) a: [String; 2],
    #[dds(element_bound = 3)]
    pub(crate) b: [String; 2],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrArr", final)]
pub(crate) struct ArrArr {
    pub(crate) x: u8,
    pub(crate) a: [[i32; 2]; 3],
    pub(crate) b: [[u8; 3]; 2],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrArrStrings", appendable)]
pub(crate) struct ArrArrStrings {
    pub(crate) a: [[String; 2]; 2],
    pub(crate) x: u8,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::SeqArr", final)]
pub(crate) struct SeqArr {
    pub(crate) a: Vec<[i32; 2]>,
    pub(crate) b: Vec<[u8; 3]>,
    pub(crate) x: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::ArrSeq", final)]
pub(crate) struct ArrSeq {
    pub(crate) a: [Vec<i16>; 2],
    pub(crate) x: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Color")]
pub(crate) enum Color {
    #[dds(name = "RED")]
    Red = 0,
    #[dds(name = "GREEN")]
    Green = 1,
    #[dds(name = "BLUE")]
    Blue = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Small", bit_bound = 8)]
pub(crate) enum Small {
    #[dds(name = "ONE")]
    One = 1,
    #[dds(name = "TWO")]
    Two = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Middle", bit_bound = 16)]
pub(crate) enum Middle {
    #[dds(name = "LOW")]
    Low = 10,
    #[dds(name = "HIGH", default)]
    High = 20000,
}

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Mask8", bitmask, bit_bound = 8, flags(A = 0, B = 3, C = 7))]
pub(crate) struct Mask8(pub(crate) u8);

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Mask16", bitmask, bit_bound = 16, flags(A = 0, B = 12))]
pub(crate) struct Mask16(pub(crate) u16);

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Mask32", bitmask, bit_bound = 32, flags(A = 0, B = 31))]
pub(crate) struct Mask32(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::Mask64", bitmask, bit_bound = 64, flags(A = 1, B = 30))]
pub(crate) struct Mask64(pub(crate) u64);

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::EnumFinal", final)]
pub(crate) struct EnumFinal {
    pub(crate) a: u8,
    pub(crate) c: Color,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::EnumMutable", mutable)]
pub(crate) struct EnumMutable {
    pub(crate) a: u8,
    pub(crate) c: Color,
    pub(crate) b: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::EnumSized", final)]
pub(crate) struct EnumSized {
    pub(crate) a: u8,
    pub(crate) s: Small,
    pub(crate) m: Middle,
    pub(crate) x: u8,
    pub(crate) t: Small,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::EnumSizedMutable", mutable)]
pub(crate) struct EnumSizedMutable {
    pub(crate) s: Small,
    pub(crate) m: Middle,
    pub(crate) c: Color,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::EnumSeq", final)]
pub(crate) struct EnumSeq {
    pub(crate) s: Vec<Color>,
    pub(crate) a: [Color; 2],
    pub(crate) x: u64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::BitmaskFinal", final)]
pub(crate) struct BitmaskFinal {
    pub(crate) x: u8,
    pub(crate) a: Mask8,
    pub(crate) b: Mask16,
    pub(crate) c: Mask32,
    pub(crate) d: Mask64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::BitmaskMutable", mutable)]
pub(crate) struct BitmaskMutable {
    pub(crate) a: Mask8,
    pub(crate) b: Mask16,
    pub(crate) c: Mask32,
    pub(crate) d: Mask64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::BitmaskSeq", appendable)]
pub(crate) struct BitmaskSeq {
    pub(crate) s: Vec<Mask16>,
    pub(crate) a: [Mask8; 2],
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::PointFinal", final)]
pub(crate) struct PointFinal {
    pub(crate) x: i32,
    pub(crate) y: f64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::PointAppendable", appendable)]
pub(crate) struct PointAppendable {
    pub(crate) x: i32,
    pub(crate) y: f64,
}

#[derive(Clone, Debug, PartialEq, DdsType)]
#[dds(name = "corpus::PointMutable", mutable)]
pub(crate) struct PointMutable {
    pub(crate) x: i32,
    pub(crate) y: f64,
}

/// Shows each structure with its value.
pub(crate) fn visit(visitor: &mut impl Visitor) {
    visitor.case(AllPrimitivesFinal { b: true, o: 171, i8: -2, i16: -300, u16: 65000, i32: -70000, u32: 4000000000, i64: -1099511627776, u64: 9223372036854775813, f32: 1.5, f64: -2.25, c: Char8(b'z') });
    visitor.case(AllReversedFinal { c: Char8(b'z'), f64: -2.25, f32: 1.5, u64: 9223372036854775813, i64: -1099511627776, u32: 4000000000, i32: -70000, u16: 65000, i16: -300, i8: -2, o: 171, b: true });
    visitor.case(AllPrimitivesAppendable { b: true, o: 171, i8: -2, i16: -300, u16: 65000, i32: -70000, u32: 4000000000, i64: -1099511627776, u64: 9223372036854775813, f32: 1.5, f64: -2.25, c: Char8(b'z') });
    visitor.case(AllReversedAppendable { c: Char8(b'z'), f64: -2.25, f32: 1.5, u64: 9223372036854775813, i64: -1099511627776, u32: 4000000000, i32: -70000, u16: 65000, i16: -300, i8: -2, o: 171, b: true });
    visitor.case(AllPrimitivesMutable { b: true, o: 171, i8: -2, i16: -300, u16: 65000, i32: -70000, u32: 4000000000, i64: -1099511627776, u64: 9223372036854775813, f32: 1.5, f64: -2.25, c: Char8(b'z') });
    visitor.case(AllReversedMutable { c: Char8(b'z'), f64: -2.25, f32: 1.5, u64: 9223372036854775813, i64: -1099511627776, u32: 4000000000, i32: -70000, u16: 65000, i16: -300, i8: -2, o: 171, b: true });
    visitor.case(GapBool { a: 1, x: true, b: 2, y: true, z: true });
    visitor.case(GapU8 { a: 1, x: 7, b: 2, y: 7, z: 7 });
    visitor.case(GapI16 { a: 1, x: -5, b: 2, y: -5, z: -5 });
    visitor.case(GapI32 { a: 1, x: 9, b: 2, y: 9, z: 9 });
    visitor.case(GapU64 { a: 1, x: 11, b: 2, y: 11, z: 11 });
    visitor.case(GapF64 { a: 1, x: 0.5, b: 2, y: 0.5, z: 0.5 });
    visitor.case(StringFinal { a: 1, s: "hello".to_owned(), b: 2, t: "".to_owned() });
    visitor.case(StringAppendable { s: "Ünïcode".to_owned(), b: 2 });
    visitor.case(StringMutable { s: "x".to_owned(), b: 2, t: "yz".to_owned() });
    visitor.case(WideFinal { a: 1, s: WideString("hé🦀".to_owned()), b: 2 });
    visitor.case(WideMutable { s: WideString("ab".to_owned()), b: 2 });
    visitor.case(SeqPrimitives { a: vec![1, 2, 3], b: vec![-1, 2], c: vec![5], d: vec![-7, 8], e: vec![], f: vec![true, false] });
    visitor.case(SeqMutable { a: vec![1, 2, 3], b: vec![-1, 2, 3], c: vec![5, 6], d: vec![7, 8], e: vec![], f: vec!["a".to_owned(), "bcd".to_owned()] });
    visitor.case(SeqStrings { a: 1, s: vec!["a".to_owned(), "bcd".to_owned(), "".to_owned()], b: 2, t: vec!["abcd".to_owned()] });
    visitor.case(SeqSeq { s: vec![vec![1, 2], vec![], vec![3]], t: vec![vec!["a".to_owned()], vec![]], b: 9 });
    visitor.case(SeqEmpty { s: vec![], t: vec![], u: "".to_owned() });
    visitor.case(SeqChar { s: vec![Char8(b'a'), Char8(b'b')], a: [Char8(b'x'), Char8(b'y'), Char8(b'z')] });
    visitor.case(ArrPrimitives { a: [1, 2, 3], b: [-1, 2], c: [5], d: [-7, 8], e: [0.5, -0.5], f: [true, false] });
    visitor.case(ArrMutable { a: [1, 2, 3], b: [-1, 2], d: [-7, 8], s: ["a".to_owned(), "bc".to_owned()] });
    visitor.case(ArrStrings { x: 1, a: ["a".to_owned(), "bc".to_owned()], b: ["".to_owned(), "xyz".to_owned()] });
    visitor.case(ArrArr { x: 1, a: [[1, 2], [3, 4], [5, 6]], b: [[1, 2, 3], [4, 5, 6]] });
    visitor.case(ArrArrStrings { a: [["a".to_owned(), "b".to_owned()], ["c".to_owned(), "dd".to_owned()]], x: 1 });
    visitor.case(SeqArr { a: vec![[1, 2], [3, 4]], b: vec![[1, 2, 3]], x: 5 });
    visitor.case(ArrSeq { a: [vec![1, 2, 3], vec![]], x: 5 });
    visitor.case(EnumFinal { a: 1, c: Color::Blue, b: 2 });
    visitor.case(EnumMutable { a: 1, c: Color::Green, b: 2 });
    visitor.case(EnumSized { a: 1, s: Small::Two, m: Middle::Low, x: 3, t: Small::One });
    visitor.case(EnumSizedMutable { s: Small::Two, m: Middle::High, c: Color::Red });
    visitor.case(EnumSeq { s: vec![Color::Red, Color::Blue], a: [Color::Green, Color::Red], x: 3 });
    visitor.case(BitmaskFinal { x: 1, a: Mask8::A.with(Mask8::C), b: Mask16::B, c: Mask32::A.with(Mask32::B), d: Mask64::B });
    visitor.case(BitmaskMutable { a: Mask8::B, b: Mask16::A, c: Mask32(0), d: Mask64::A.with(Mask64::B) });
    visitor.case(BitmaskSeq { s: vec![Mask16::A, Mask16::A.with(Mask16::B)], a: [Mask8::A, Mask8::C] });
    visitor.case(PointFinal { x: 1, y: 2.5 });
    visitor.case(PointAppendable { x: 1, y: 2.5 });
    visitor.case(PointMutable { x: 1, y: 2.5 });
}
