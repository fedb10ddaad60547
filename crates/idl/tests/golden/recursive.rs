// Written by spindle-idl from recursive.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    pub type Nodes = Vec<Node>;

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Node", final)]
    pub struct Node {
        pub value: i32,
        pub children: Nodes,
    }

    impl ::core::default::Default for Node {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Chain", final)]
    pub struct Chain {
        pub value: i32,
        pub next: Option<Box<Chain>>,
    }

    impl ::core::default::Default for Chain {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Pair", final)]
    pub struct Pair {
        pub left: Tree,
        pub right: i32,
    }

    impl ::core::default::Default for Pair {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Tree", union, final, discriminator = i16)]
    pub enum Tree {
        #[dds(name = "leaf", case = 0)]
        Leaf(i32),
        #[dds(name = "pair", case = 1)]
        Pair(Box<Pair>),
        /// All other discriminators, which select no member.
        #[dds(default)]
        NoMember(i16),
    }

    impl ::core::default::Default for Tree {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
