// Written by spindle-idl from beyond.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod beyond {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Order")]
    pub enum Order {
        #[dds(name = "FIRST")]
        First = 0,
        #[dds(name = "SECOND")]
        Second = 1,
    }

    impl ::core::default::Default for Order {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    pub const MASK: u32 = 4294967280;

    pub const NEGATIVE: i32 = -15;

    pub const WIDE: ::spindle_xcdr::Char16 = ::spindle_xcdr::Char16(0x20ac);

    pub const WIDE_TEXT: &str = "wide";

    pub const HALF: f64 = 0.5;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Bits", bitmask, bit_bound = 32, flags(one = 0, two = 1, three = 2))]
    pub struct Bits(pub u32);

    impl ::core::default::Default for Bits {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    pub const BOTH: Bits = Bits(0x5);

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::ByOrder", union, final, discriminator = Order)]
    pub enum ByOrder {
        #[dds(name = "first", case = Order::First)]
        First(Box<i32>),
        #[dds(name = "second", case = Order::Second, bound = 8)]
        Second(::spindle_xcdr::WideString),
    }

    impl ::core::default::Default for ByOrder {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Beyond", final)]
    pub struct Beyond {
        #[dds(default = Order::Second)]
        pub order: Order,
        #[dds(default = Bits(0x6))]
        pub bits: Bits,
        #[dds(bound = 4, default = ::spindle_xcdr::WideString(String::from("w")))]
        pub wide: ::spindle_xcdr::WideString,
        pub letter: ::spindle_xcdr::Char16,
        pub deep: Vec<Vec<::spindle_xcdr::Char16>>,
        pub choice: ByOrder,
    }

    impl ::core::default::Default for Beyond {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    pub type Nodes = Vec<Node>;

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Node", appendable)]
    pub struct Node {
        pub value: i32,
        pub children: Nodes,
        pub next: Option<Box<Node>>,
    }

    impl ::core::default::Default for Node {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Middle", final, plain)]
    #[repr(C)]
    pub struct Middle {
        #[dds(key)]
        pub x: i32,
        pub y: i32,
    }

    impl ::core::default::Default for Middle {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Outer", final, plain)]
    #[repr(C)]
    pub struct Outer {
        #[dds(key)]
        pub middle: Middle,
        #[dds(key)]
        pub z: i32,
    }

    impl ::core::default::Default for Outer {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Keyed", union, appendable, discriminator = Order, discriminator_key)]
    pub enum Keyed {
        #[dds(name = "x", case = Order::First)]
        X(i32),
        #[dds(name = "y", default, octet)]
        Y(Order, u8),
    }

    impl ::core::default::Default for Keyed {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::KeyedByUnion", final)]
    pub struct KeyedByUnion {
        #[dds(key)]
        pub choice: Keyed,
        pub value: i32,
    }

    impl ::core::default::Default for KeyedByUnion {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "beyond::Signed")]
    pub enum Signed {
        #[dds(name = "MINUS_THREE")]
        MinusThree = -3,
        #[dds(name = "MINUS_TWO")]
        MinusTwo = -2,
    }

    impl ::core::default::Default for Signed {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
