// Written by spindle-idl from annotations.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Topic", final, plain)]
    #[repr(C)]
    pub struct Topic {
        #[dds(key)]
        pub id: i32,
    }

    impl ::core::default::Default for Topic {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::AlsoTopic", appendable)]
    pub struct AlsoTopic {
        pub id: i32,
    }

    impl ::core::default::Default for AlsoTopic {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Inside", final, nested)]
    pub struct Inside {
        pub id: i32,
        pub far: Box<i32>,
    }

    impl ::core::default::Default for Inside {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
