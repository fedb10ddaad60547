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
        #[dds(name = "i8_")]
        pub i8: i8,
        #[dds(name = "u8_")]
        pub u8: u8,
        pub s: i16,
        #[dds(name = "i16_")]
        pub i16: i16,
        pub us: u16,
        #[dds(name = "u16_")]
        pub u16: u16,
        pub l: i32,
        #[dds(name = "i32_")]
        pub i32: i32,
        pub ul: u32,
        #[dds(name = "u32_")]
        pub u32: u32,
        pub ll: i64,
        #[dds(name = "i64_")]
        pub i64: i64,
        pub ull: u64,
        #[dds(name = "u64_")]
        pub u64: u64,
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
