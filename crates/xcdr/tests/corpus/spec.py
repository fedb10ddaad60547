"""The types of the corpus and one value of each, from which make.py writes Rust, Python and C++.

A type is written as text: `i32`, `string`, `string<8>`, `seq<T>`, `seq<T,8>`, `arr<T,3>`, `map<K,V>`, `opt<T>`, or the name of a
type that stands above. A value of a structure is the tuple of its members; None is an absent member. A value of a union is
(discriminator, member); of an enumeration the name of the literal; of a bit mask the list of its flags.
"""

TYPES = []
BY_NAME = {}


def add(kind, name, **more):
    entry = dict(kind=kind, name=name, **more)
    assert name not in BY_NAME, name
    TYPES.append(entry)
    BY_NAME[name] = entry


def struct(name, ext, members, value, autoid=None):
    """members: (name, type) or (name, type, {key, id, hashid, must_understand})"""
    members = [(m[0], m[1], m[2] if len(m) > 2 else {}) for m in members]
    add("struct", name, ext=ext, members=members, value=value, autoid=autoid)


def enum(name, literals, bits=32, default=None):
    add("enum", name, literals=literals, bits=bits, default=default)


def bitmask(name, flags, bits):
    add("bitmask", name, flags=flags, bits=bits)


def union(name, ext, disc, cases, value, disc_key=False):
    """cases: (name, labels or None for the default, type)"""
    add("union", name, ext=ext, disc=disc, cases=cases, value=value, disc_key=disc_key)


KEY = {"key": True}
MU = {"must_understand": True}

# ---- primitive types, in every alignment
PRIMS = [("b", "bool", True), ("o", "u8", 0xab), ("i8", "i8", -2), ("i16", "i16", -300), ("u16", "u16", 65000),
         ("i32", "i32", -70000), ("u32", "u32", 4000000000), ("i64", "i64", -2**40), ("u64", "u64", 2**63 + 5),
         ("f32", "f32", 1.5), ("f64", "f64", -2.25), ("c", "char", "z")]
for ext in ("final", "appendable", "mutable"):
    title = ext.capitalize()
    struct("AllPrimitives" + title, ext, [(n, t) for n, t, _ in PRIMS], tuple(v for _, _, v in PRIMS))
    struct("AllReversed" + title, ext, [(n, t) for n, t, _ in reversed(PRIMS)], tuple(v for _, _, v in reversed(PRIMS)))
for t, v in (("bool", True), ("u8", 7), ("i16", -5), ("i32", 9), ("u64", 11), ("f64", 0.5)):
    struct("Gap" + t.capitalize(), "final", [("a", "u8"), ("x", t), ("b", "u8"), ("y", t), ("z", t)], (1, v, 2, v, v))

# ---- strings
struct("StringFinal", "final", [("a", "u8"), ("s", "string"), ("b", "u64"), ("t", "string<8>")], (1, "hello", 2, ""))
struct("StringAppendable", "appendable", [("s", "string"), ("b", "u64")], ("Ünïcode", 2))
struct("StringMutable", "mutable", [("s", "string"), ("b", "u64"), ("t", "string<16>")], ("x", 2, "yz"))
struct("WideFinal", "final", [("a", "u8"), ("s", "wstring"), ("b", "u64")], (1, "hé🦀", 2))
struct("WideMutable", "mutable", [("s", "wstring"), ("b", "u8")], ("ab", 2))

# ---- sequences
struct("SeqPrimitives", "final",
       [("a", "seq<u8>"), ("b", "seq<i16>"), ("c", "seq<i32>"), ("d", "seq<i64>"), ("e", "seq<f64,4>"), ("f", "seq<bool>")],
       ([1, 2, 3], [-1, 2], [5], [-7, 8], [], [True, False]))
struct("SeqMutable", "mutable",
       [("a", "seq<u8>"), ("b", "seq<i16>"), ("c", "seq<i32>"), ("d", "seq<u64>"), ("e", "seq<f32>"), ("f", "seq<string>")],
       ([1, 2, 3], [-1, 2, 3], [5, 6], [7, 8], [], ["a", "bcd"]))
struct("SeqStrings", "final", [("a", "u8"), ("s", "seq<string>"), ("b", "u8"), ("t", "seq<string<4>,3>")],
       (1, ["a", "bcd", ""], 2, ["abcd"]))
struct("SeqSeq", "appendable", [("s", "seq<seq<i32>>"), ("t", "seq<seq<string>>"), ("b", "u64")],
       ([[1, 2], [], [3]], [["a"], []], 9))
struct("SeqEmpty", "mutable", [("s", "seq<seq<i32>>"), ("t", "seq<u64>"), ("u", "string")], ([], [], ""))
struct("SeqChar", "final", [("s", "seq<char>"), ("a", "arr<char,3>")], (["a", "b"], ["x", "y", "z"]))

# ---- arrays
struct("ArrPrimitives", "final",
       [("a", "arr<u8,3>"), ("b", "arr<i16,2>"), ("c", "arr<i32,1>"), ("d", "arr<i64,2>"), ("e", "arr<f64,2>"), ("f", "arr<bool,2>")],
       ([1, 2, 3], [-1, 2], [5], [-7, 8], [0.5, -0.5], [True, False]))
struct("ArrMutable", "mutable", [("a", "arr<u8,3>"), ("b", "arr<i16,2>"), ("d", "arr<i64,2>"), ("s", "arr<string,2>")],
       ([1, 2, 3], [-1, 2], [-7, 8], ["a", "bc"]))
struct("ArrStrings", "final", [("x", "u8"), ("a", "arr<string,2>"), ("b", "arr<string<3>,2>")], (1, ["a", "bc"], ["", "xyz"]))
struct("ArrArr", "final", [("x", "u8"), ("a", "arr<arr<i32,2>,3>"), ("b", "arr<arr<u8,3>,2>")],
       (1, [[1, 2], [3, 4], [5, 6]], [[1, 2, 3], [4, 5, 6]]))
struct("ArrArrStrings", "appendable", [("a", "arr<arr<string,2>,2>"), ("x", "u8")], ([["a", "b"], ["c", "dd"]], 1))
struct("SeqArr", "final", [("a", "seq<arr<i32,2>>"), ("b", "seq<arr<u8,3>>"), ("x", "u64")], ([[1, 2], [3, 4]], [[1, 2, 3]], 5))
struct("ArrSeq", "final", [("a", "arr<seq<i16>,2>"), ("x", "u64")], ([[1, 2, 3], []], 5))

# ---- enumerations and bit masks
enum("Color", [("RED", 0), ("GREEN", 1), ("BLUE", 5)])
enum("Small", [("ONE", 1), ("TWO", 2)], bits=8)
enum("Middle", [("LOW", 10), ("HIGH", 20000)], bits=16, default="HIGH")
bitmask("Mask8", [("A", 0), ("B", 3), ("C", 7)], 8)
bitmask("Mask16", [("A", 0), ("B", 12)], 16)
bitmask("Mask32", [("A", 0), ("B", 31)], 32)
bitmask("Mask64", [("A", 1), ("B", 30)], 64)
struct("EnumFinal", "final", [("a", "u8"), ("c", "Color"), ("b", "u64")], (1, "BLUE", 2))
struct("EnumMutable", "mutable", [("a", "u8"), ("c", "Color"), ("b", "u64")], (1, "GREEN", 2))
struct("EnumSized", "final", [("a", "u8"), ("s", "Small"), ("m", "Middle"), ("x", "u8"), ("t", "Small")], (1, "TWO", "LOW", 3, "ONE"))
struct("EnumSizedMutable", "mutable", [("s", "Small"), ("m", "Middle"), ("c", "Color")], ("TWO", "HIGH", "RED"))
struct("EnumSeq", "final", [("s", "seq<Color>"), ("a", "arr<Color,2>"), ("x", "u64")], (["RED", "BLUE"], ["GREEN", "RED"], 3))
struct("BitmaskFinal", "final", [("x", "u8"), ("a", "Mask8"), ("b", "Mask16"), ("c", "Mask32"), ("d", "Mask64")],
       (1, ["A", "C"], ["B"], ["A", "B"], ["B"]))
struct("BitmaskMutable", "mutable", [("a", "Mask8"), ("b", "Mask16"), ("c", "Mask32"), ("d", "Mask64")],
       (["B"], ["A"], [], ["A", "B"]))
struct("BitmaskSeq", "appendable", [("s", "seq<Mask16>"), ("a", "arr<Mask8,2>")], ([["A"], ["A", "B"]], [["A"], ["C"]]))

# ---- nested structures
struct("PointFinal", "final", [("x", "i32"), ("y", "f64")], (1, 2.5))
struct("PointAppendable", "appendable", [("x", "i32"), ("y", "f64")], (1, 2.5))
struct("PointMutable", "mutable", [("x", "i32"), ("y", "f64")], (1, 2.5))
POINTS = ("PointFinal", "PointAppendable", "PointMutable")
for ext in ("final", "appendable", "mutable"):
    struct("Nested" + ext.capitalize(), ext, [("a", "u8")] + [(f"m{i}", p) for i, p in enumerate(POINTS)] + [("b", "u64")],
           (3, (1, 2.5), (3, 4.5), (5, 6.5), 7))
    struct("SeqOfStructs" + ext.capitalize(), ext, [(f"m{i}", f"seq<{p}>") for i, p in enumerate(POINTS)] + [("b", "u8")],
           ([(1, 2.5), (3, 4.5)], [(5, 6.5)], [(7, 8.5), (9, 10.5)], 7))
struct("ArrOfStructs", "final", [("a", "arr<PointFinal,2>"), ("b", "arr<PointAppendable,2>"), ("c", "arr<PointMutable,1>")],
       ([(1, 2.5), (3, 4.5)], [(5, 6.5), (0, 0.0)], [(7, 8.5)]))
struct("Deep", "final", [("n", "NestedMutable"), ("s", "seq<NestedAppendable>")],
       ((3, (1, 2.5), (3, 4.5), (5, 6.5), 7), [(4, (1, 2.5), (3, 4.5), (5, 6.5), 8)]))

# ---- optional members
for ext in ("final", "appendable", "mutable"):
    struct("Optional" + ext.capitalize(), ext,
           [("a", "opt<u8>"), ("b", "opt<u64>"), ("c", "opt<string>"), ("d", "opt<i32>"), ("e", "opt<PointFinal>"), ("f", "u8")],
           (1, 2, None, None, (1, 2.5), 3))
    struct("OptionalMore" + ext.capitalize(), ext,
           [("a", "u8"), ("b", "opt<seq<u16>>"), ("c", "opt<PointMutable>"), ("d", "opt<f64>"), ("e", "opt<Color>")],
           (1, [1, 2, 3], (4, 5.5), 6.5, "BLUE"))

# ---- unions
union("UnionFinal", "final", "i32", [("a", [1], "i32"), ("b", [2, 3], "string"), ("c", None, "f64")], None)
union("UnionAppendable", "appendable", "i16", [("a", [1], "u8"), ("b", [-2], "seq<i32>"), ("d", [4], "PointMutable")], None)
union("UnionEnum", "final", "Color", [("a", ["RED"], "u8"), ("b", ["BLUE"], "u64")], None)
union("UnionBool", "final", "bool", [("yes", [True], "string")], None)
union("UnionByte", "appendable", "u8", [("a", [0], "i16"), ("rest", None, "PointFinal")], None)
struct("UnionsFinal", "final",
       [("a", "UnionFinal"), ("b", "UnionFinal"), ("c", "UnionFinal"), ("d", "UnionAppendable"), ("e", "UnionEnum"), ("f", "UnionBool")],
       ((1, 7), (3, "three"), (9, 1.5), (-2, [1, 2]), ("BLUE", 5), (True, "y")))
struct("UnionsMutable", "mutable", [("a", "UnionFinal"), ("d", "UnionAppendable"), ("e", "UnionEnum"), ("g", "UnionByte")],
       ((2, "two"), (4, (1, 2.5)), ("RED", 5), (9, (1, 2.5))))
struct("SeqOfUnions", "appendable", [("s", "seq<UnionFinal>"), ("t", "seq<UnionAppendable>"), ("x", "u8")],
       ([(1, 7), (2, "two")], [(1, 9), (-2, [])], 3))

# ---- maps
struct("MapPrimitive", "final", [("a", "u8"), ("m", "map<i32,f64>"), ("n", "map<i16,u8>")], (1, {1: 0.5, 2: 1.5}, {-1: 3}))
struct("MapString", "appendable", [("m", "map<string,u32>"), ("n", "map<u8,string>"), ("x", "u8")], ({"a": 1, "b": 2}, {4: "four"}, 3))
struct("MapStruct", "mutable", [("m", "map<string,PointAppendable>"), ("n", "map<i32,i32>")], ({"p": (1, 2.5)}, {1: 2}))

# ---- identifiers
struct("IdsMutable", "mutable", [("a", "u8", {"id": 100}), ("b", "string"), ("c", "u32", {"id": 5}), ("d", "u32", {"id": 0x0ffffffe})],
       (1, "b", 2, 3))
struct("HashIds", "mutable", [("a", "u8", {"hashid": ""}), ("b", "u16", {"hashid": ""}), ("c", "i64", {"id": 3})], (1, 2, 3))
struct("HashIdText", "mutable", [("a", "u8", {"hashid": "b"}), ("b", "u16", {"hashid": "other"})], (1, 2))
struct("AutoidHash", "mutable", [("first", "u8"), ("second", "string"), ("third", "opt<i64>")], (1, "x", 3), autoid="hash")
struct("MustUnderstand", "mutable", [("a", "u8", MU), ("b", "string"), ("c", "opt<u64>", MU)], (1, "b", 3))

# ---- keys
struct("KeyOne", "final", [("id", "i32", KEY), ("x", "f64")], (7, 1.5))
struct("KeyTwo", "final", [("a", "u8", KEY), ("x", "f64"), ("b", "u64", KEY), ("c", "i16", KEY)], (1, 1.5, 2, 3))
struct("KeyString", "final", [("x", "u8"), ("name", "string", KEY)], (1, "a name"))
struct("KeyBounded", "final", [("name", "string<8>", KEY), ("x", "u8")], ("short", 1))
struct("KeyLarge", "final", [("a", "arr<u8,17>", KEY), ("x", "u8")], (list(range(17)), 1))
struct("KeyAppendable", "appendable", [("a", "u8"), ("b", "i64", KEY), ("c", "string", KEY)], (1, -2, "c"))
struct("KeyMutable", "mutable", [("a", "u8", {"id": 5, "key": True}), ("b", "i64", {"id": 2}), ("c", "u32", {"id": 1, "key": True})],
       (1, -2, 3))
struct("KeyNested", "final", [("k", "KeyTwo", KEY), ("p", "PointFinal", KEY), ("x", "u8")], ((1, 1.5, 2, 3), (1, 2.5), 9))
struct("KeyNestedAppendable", "appendable", [("k", "KeyAppendable", KEY), ("p", "PointAppendable"), ("x", "u8", KEY)],
       ((1, -2, "c"), (1, 2.5), 9))
struct("KeyEnum", "final", [("c", "Color", KEY), ("s", "Small", KEY), ("f", "Mask16", KEY), ("x", "u64")], ("BLUE", "TWO", ["B"], 9))
struct("KeySixteen", "final", [("a", "u64", KEY), ("b", "u64", KEY), ("x", "u8")], (1, 2, 3))

# ---- recursive, and the types that examples use
struct("ShapeType", "final", [("color", "string<128>", KEY), ("x", "i32"), ("y", "i32"), ("shapesize", "i32")], ("BLUE", 10, 20, 30))
struct("HelloWorld", "final", [("user_id", "i32", KEY), ("message", "string")], (1, "Hello World"))
struct("Throughput", "final", [("count", "u64"), ("payload", "seq<u8>")], (5, list(range(20))))
struct("Time", "final", [("sec", "i32"), ("nanosec", "u32")], (17, 99))
struct("Header", "final", [("stamp", "Time"), ("frame_id", "string")], ((17, 99), "map"))
struct("PointCloud", "appendable",
       [("header", "Header"), ("height", "u32"), ("fields", "seq<ShapeType,10>"), ("dense", "bool"), ("data", "seq<u8>")],
       (((17, 99), "map"), 3, [("RED", 1, 2, 3)], True, [1, 2, 3, 4, 5]))
