// Written by spindle-idl from names.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod names {
    pub mod r#type {
        #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
        #[dds(name = "Names::type::struct", final, plain)]
        #[repr(C)]
        pub struct Struct {
            #[dds(name = "self")]
            pub self_: i32,
            pub r#match: i32,
            pub fooBar: i32,
            pub foo_bar: i32,
            pub long: i32,
        }

        impl ::core::default::Default for Struct {
            fn default() -> Self {
                ::spindle_xcdr::Cdr::missing()
            }
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "Names::Vec", final, plain)]
    #[repr(C)]
    pub struct Vec {
        pub x: i32,
    }

    impl ::core::default::Default for Vec {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "Names::String", final)]
    pub struct String {
        pub text: ::std::string::String,
        pub list: ::std::vec::Vec<Vec>,
    }

    impl ::core::default::Default for String {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "Names::HTTPRequest", final, plain)]
    #[repr(C)]
    pub struct HttpRequest {
        pub value: Vec,
        pub inner: r#type::Struct,
    }

    impl ::core::default::Default for HttpRequest {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
#[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
#[dds(name = "Top_Level", final)]
pub struct TopLevel {
    pub text: names::String,
}

impl ::core::default::Default for TopLevel {
    fn default() -> Self {
        ::spindle_xcdr::Cdr::missing()
    }
}
