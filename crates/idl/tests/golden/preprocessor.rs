// Written by spindle-idl from preprocessor.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Extra", final)]
    pub struct Extra {
        #[dds(key)]
        pub id: i32,
        pub data: [i32; 5],
        pub text: String,
    }

    impl ::core::default::Default for Extra {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::NoKey", final, plain)]
    #[repr(C)]
    pub struct NoKey {
        pub a: i32,
    }

    impl ::core::default::Default for NoKey {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
