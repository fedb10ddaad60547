// Written by spindle-idl from sensor.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod sensor {
    pub const MAX_SAMPLES: u32 = 64;

    /// How a reading came about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "sensor::Quality")]
    pub enum Quality {
        #[dds(name = "GOOD")]
        Good = 0,
        #[dds(name = "ESTIMATED")]
        Estimated = 4,
        #[dds(name = "BAD", default)]
        Bad = 5,
    }

    impl ::core::default::Default for Quality {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "sensor::Position", final, plain, nested)]
    #[repr(C)]
    pub struct Position {
        pub latitude: f64,
        pub longitude: f64,
    }

    impl ::core::default::Default for Position {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    /// A reading of a sensor.
    ///
    /// Each sensor is an instance.
    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "sensor::Reading", appendable)]
    pub struct Reading {
        #[dds(name = "sensorId", key)]
        pub sensor_id: i32,
        /// The time in nanoseconds since 1970.
        pub time: u64,
        pub position: Position,
        pub quality: Quality,
        #[dds(bound = 64)]
        pub samples: Vec<f64>,
        #[dds(bound = 32)]
        pub comment: Option<String>,
    }

    impl ::core::default::Default for Reading {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
