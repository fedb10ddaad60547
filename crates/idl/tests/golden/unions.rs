// Written by spindle-idl from unions.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Color", bit_bound = 8)]
    pub enum Color {
        #[dds(name = "RED")]
        Red = 0,
        #[dds(name = "GREEN")]
        Green = 1,
        #[dds(name = "BLUE")]
        Blue = 7,
    }

    impl ::core::default::Default for Color {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    pub type Paint = Color;

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::ByNumber", union, final, discriminator = i32)]
    pub enum ByNumber {
        #[dds(name = "a", case = 1)]
        A(i32),
        #[dds(name = "b", case(2, -3), bound = 8)]
        B(i32, String),
        #[dds(name = "c", case = 16, bound = 4, octet)]
        C(Vec<u8>),
        /// All other discriminators, which select no member.
        #[dds(default)]
        NoMember(i32),
    }

    impl ::core::default::Default for ByNumber {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::ByColor", union, appendable, discriminator = Color)]
    pub enum ByColor {
        #[dds(name = "thick", case = Color::Red)]
        Thick(f64),
        #[dds(name = "other", case(Color::Green), default)]
        Other(Color, i32),
    }

    impl ::core::default::Default for ByColor {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::ByBoolean", union, final, discriminator = bool)]
    pub enum ByBoolean {
        #[dds(name = "yes", case = true)]
        Yes(Box<ByNumber>),
        #[dds(name = "no", case = false, octet)]
        No(u8),
    }

    impl ::core::default::Default for ByBoolean {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::ByCharacter", union, final, discriminator = ::spindle_xcdr::Char8)]
    pub enum ByCharacter {
        #[dds(name = "ab", case(::spindle_xcdr::Char8(b'a'), ::spindle_xcdr::Char8(b'b')))]
        Ab(::spindle_xcdr::Char8, i32),
        #[dds(name = "newline", case = ::spindle_xcdr::Char8(b'\n'))]
        Newline(i32),
        /// All other discriminators, which select no member.
        #[dds(default)]
        NoMember(::spindle_xcdr::Char8),
    }

    impl ::core::default::Default for ByCharacter {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::ByOctet", union, final, discriminator = ::spindle_xcdr::Octet)]
    pub enum ByOctet {
        #[dds(name = "one", case = ::spindle_xcdr::Octet(1))]
        One(i32),
        #[dds(name = "more", default)]
        More(::spindle_xcdr::Octet, [i32; 2]),
    }

    impl ::core::default::Default for ByOctet {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Unions", appendable)]
    pub struct Unions {
        pub number: ByNumber,
        pub color: ByColor,
        pub booleans: Vec<ByBoolean>,
        pub character: ByCharacter,
        pub byte: ByOctet,
    }

    impl ::core::default::Default for Unions {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
