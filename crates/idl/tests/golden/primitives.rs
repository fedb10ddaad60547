// Written by spindle-idl from primitives.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Primitives", final)]
    pub struct Primitives {
        pub b: bool,
        #[dds(octet)]
        pub o: u8,
        pub c: ::spindle_xcdr::Char8,
        pub i8_: i8,
        pub u8_: u8,
        pub s: i16,
        pub i16_: i16,
        pub us: u16,
        pub u16_: u16,
        pub l: i32,
        pub i32_: i32,
        pub ul: u32,
        pub u32_: u32,
        pub ll: i64,
        pub i64_: i64,
        pub ull: u64,
        pub u64_: u64,
        pub f: f32,
        pub d: f64,
        pub text: String,
        #[dds(bound = 8)]
        pub short_text: String,
    }

    impl ::core::default::Default for Primitives {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Plain", final, plain)]
    #[repr(C)]
    pub struct Plain {
        pub x: f64,
        pub y: f32,
        pub z: [u16; 2],
        #[dds(octet)]
        pub bytes: [u8; 8],
    }

    impl ::core::default::Default for Plain {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Hashed", mutable, autoid = "hash")]
    pub struct Hashed {
        pub color: i32,
        #[dds(hashid = "shapesize")]
        pub size: i32,
        #[dds(id = 7, must_understand, octet)]
        pub flags: u8,
        #[dds(hashid)]
        pub other: i32,
    }

    impl ::core::default::Default for Hashed {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Numbered", mutable)]
    pub struct Numbered {
        #[dds(id = 5)]
        pub five: i32,
        pub six: i32,
        #[dds(key, id = 2)]
        pub two: i32,
    }

    impl ::core::default::Default for Numbered {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
