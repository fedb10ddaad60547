// Written by spindle-idl from inheritance.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    pub mod common {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
        #[dds(name = "corpus::common::Level")]
        pub enum Level {
            #[dds(name = "LOW")]
            Low = 0,
            #[dds(name = "HIGH")]
            High = 1,
        }

        impl ::core::default::Default for Level {
            fn default() -> Self {
                ::spindle_xcdr::Cdr::missing()
            }
        }

        #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
        #[dds(name = "corpus::common::Base", appendable)]
        pub struct Base {
            #[dds(key)]
            pub id: i32,
            pub level_of_base: Level,
        }

        impl ::core::default::Default for Base {
            fn default() -> Self {
                ::spindle_xcdr::Cdr::missing()
            }
        }
    }

    pub mod inner {
        #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
        #[dds(name = "corpus::inner::Derived", appendable)]
        pub struct Derived {
            #[dds(key)]
            pub id: i32,
            pub level_of_base: super::common::Level,
            pub text: String,
            pub level: super::common::Level,
        }

        impl ::core::default::Default for Derived {
            fn default() -> Self {
                ::spindle_xcdr::Cdr::missing()
            }
        }

        #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
        #[dds(name = "corpus::inner::Last", appendable)]
        pub struct Last {
            #[dds(key)]
            pub id: i32,
            pub level_of_base: super::common::Level,
            pub text: String,
            pub level: super::common::Level,
            pub more: Option<i32>,
        }

        impl ::core::default::Default for Last {
            fn default() -> Self {
                ::spindle_xcdr::Cdr::missing()
            }
        }

        #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
        #[dds(name = "corpus::inner::Again", final)]
        pub struct Again {
            pub derived: Derived,
            pub base: super::common::Base,
        }

        impl ::core::default::Default for Again {
            fn default() -> Self {
                ::spindle_xcdr::Cdr::missing()
            }
        }
    }
}
