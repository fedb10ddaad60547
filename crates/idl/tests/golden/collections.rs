// Written by spindle-idl from collections.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    pub const N: i32 = 3;

    pub type Name = String;

    pub type Names = Vec<Name>;

    pub type Row = [i32; 3];

    pub type Grid = [Row; 2];

    pub type Bytes = [u8; 4];

    pub type Blob = Vec<u8>;

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Collections", appendable)]
    pub struct Collections {
        pub numbers: Vec<i32>,
        #[dds(bound = 5)]
        pub few: Vec<i32>,
        pub deep: Vec<Vec<i16>>,
        #[dds(bound = 2, element_bound = 8)]
        pub texts: Vec<String>,
        #[dds(bound = 4, element_bound = 16)]
        pub names: Names,
        pub row: Row,
        pub grid: Grid,
        #[dds(bound = 16)]
        pub label: Name,
        #[dds(element_bound = 4)]
        pub cells: [[String; 3]; 2],
        #[dds(octet)]
        pub four: Bytes,
        #[dds(octet)]
        pub blob: Blob,
        #[dds(octet)]
        pub blobs: Vec<Bytes>,
        pub flags: Vec<bool>,
        pub a: i32,
        pub b: [i32; 2],
        pub c: i32,
    }

    impl ::core::default::Default for Collections {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
