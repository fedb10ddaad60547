//! Decoders take arbitrary bytes: they return errors, and reserve no more memory than the bytes justify.
//!
//! `XCDR_SEED` sets the seed, which a failure prints; `XCDR_ROUNDS` the mutations of each sample.
#[path = "corpus/types_0.rs"]
#[allow(dead_code)]
mod types_0;
#[path = "corpus/types_1.rs"]
#[allow(dead_code)]
mod types_1;

use spindle_xcdr::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Debug;

/// Sees each type of the corpus with its value.
pub(crate) trait Visitor {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T);
}

/// Measures the largest allocation of each thread.
struct Measured;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    // A thread that ends has no cell any more, and decodes nothing.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: each call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Measured {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of this function, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer is from `alloc` or `realloc`, thus from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the pointer is from `alloc` or `realloc`, thus from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Measured = Measured;

/// Returns the largest allocation of a call, in bytes.
fn largest_of(call: impl FnOnce()) -> usize {
    LARGEST.with(|largest| largest.set(0));
    call();
    LARGEST.with(Cell::get)
}

/// A generator of numbers (xorshift64*).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }

    /// Changes bytes as damage and attackers do.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => bytes.truncate(at.max(4)),
                3 => bytes.insert(at, self.next() as u8),
                4 if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0xff),
                5 if at + 4 <= bytes.len() => {
                    let length = (self.below(1 << 20) as u32).to_le_bytes();
                    bytes[at..at + 4].copy_from_slice(&length);
                }
                _ => bytes[1] = self.below(12) as u8,
            }
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The bytes of the largest allocation that a sample of this size justifies: a few for each of its
/// bytes, for elements that are larger in memory than encoded, and a fixed part for the type itself.
fn justified(sample: usize, of_type: usize) -> usize {
    64 * sample + 4 * of_type + 4096
}

struct Mutations {
    chance: Chance,
    rounds: u64,
    decoded: u64,
    refused: u64,
}

fn formats() -> [SampleFormat; 4] {
    let of = |version, order| SampleFormat { version, order, parameters: ParameterForm::Extended };
    [
        of(XcdrVersion::Xcdr1, ByteOrder::Little),
        of(XcdrVersion::Xcdr1, ByteOrder::Big),
        of(XcdrVersion::Xcdr2, ByteOrder::Little),
        of(XcdrVersion::Xcdr2, ByteOrder::Big),
    ]
}

impl Visitor for Mutations {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T) {
        let dynamic = DynamicType::new(T::description());
        for format in formats() {
            let sample = encode_sample(&value, format).unwrap();
            for _ in 0..self.rounds {
                let mut bytes = sample.clone();
                self.chance.mutate(&mut bytes);
                let mut read = None;
                let largest = largest_of(|| read = Some(decode_sample::<T>(&bytes)));
                assert!(largest <= justified(bytes.len(), size_of::<T>()), "{} {largest} bytes", T::NAME);
                let mut dynamic_read = None;
                let largest = largest_of(|| dynamic_read = Some(dynamic.decode_sample(&bytes)));
                assert!(largest <= justified(bytes.len(), size_of::<T>()), "{} dynamic {largest} bytes", T::NAME);
                match (read.unwrap(), dynamic_read.unwrap()) {
                    (Ok(value), Ok(dynamic_value)) => {
                        self.decoded += 1;
                        self.again(&value, &dynamic, &dynamic_value, format);
                    }
                    (Err(error), _) => {
                        self.refused += 1;
                        assert!(error.offset() <= bytes.len() as u64, "{error}");
                    }
                    // A map keeps one of two equal keys, which dynamic data does not compare.
                    (Ok(_), Err(error)) => panic!("{}: only the derived type is decoded: {error}", T::NAME),
                }
            }
        }
    }
}

impl Mutations {
    /// Both forms of a value are encoded alike, and read back to the same bytes.
    fn again<T: DdsType>(&self, value: &T, dynamic: &DynamicType, dynamic_value: &DynamicValue, format: SampleFormat) {
        match (encode_sample(value, format), dynamic.encode_sample(dynamic_value, format)) {
            (Ok(bytes), Ok(dynamic_bytes)) => {
                let read = decode_sample::<T>(&bytes).unwrap();
                assert_eq!(encode_sample(&read, format).unwrap(), bytes, "{}", T::NAME);
                if !T::NAME.starts_with("corpus::Map") {
                    assert_eq!(bytes, dynamic_bytes, "{}", T::NAME);
                }
            }
            (Err(error), Err(_)) => assert!(matches!(error.fault(), WriteFault::Nul { .. }), "{error}"),
            (left, right) => panic!("{}: {left:?} {right:?}", T::NAME),
        }
    }
}

#[test]
fn mutated_samples_are_decoded_or_refused() {
    let seed = setting("XCDR_SEED", 0x5eed);
    println!("XCDR_SEED={seed}");
    let rounds = setting("XCDR_ROUNDS", 60);
    let mut mutations = Mutations { chance: Chance(seed | 1), rounds, decoded: 0, refused: 0 };
    types_0::visit(&mut mutations);
    types_1::visit(&mut mutations);
    let Mutations { decoded, refused, .. } = mutations;
    assert!(decoded > 1000 && refused > 1000, "{decoded} decoded, {refused} refused");
}

struct Random {
    chance: Chance,
    rounds: u64,
}

impl Visitor for Random {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, _: T) {
        let dynamic = DynamicType::new(T::description());
        for _ in 0..self.rounds {
            let length = self.chance.below(200);
            let mut bytes: Vec<u8> = (0..length).map(|_| self.chance.next() as u8).collect();
            if let Some(header) = bytes.get_mut(..4) {
                let id = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11][self.chance.below(10)];
                header.copy_from_slice(&[0, id, 0, 0]);
            }
            let largest = largest_of(|| {
                let _ = decode_sample::<T>(&bytes);
                let _ = decode_key_sample::<T>(&bytes);
                let _ = dynamic.decode_sample(&bytes);
                let _ = dynamic.decode_key_sample(&bytes);
            });
            assert!(largest <= justified(bytes.len(), size_of::<T>()), "{} {largest} bytes", T::NAME);
        }
    }
}

#[test]
fn random_bytes_are_decoded_or_refused() {
    let seed = setting("XCDR_SEED", 0x5eed);
    println!("XCDR_SEED={seed}");
    let mut random = Random { chance: Chance(seed | 1), rounds: setting("XCDR_ROUNDS", 60) * 4 };
    types_0::visit(&mut random);
    types_1::visit(&mut random);
}

struct Objects {
    chance: Chance,
    rounds: u64,
    described: u64,
}

impl Visitor for Objects {
    fn case<T: DdsType + PartialEq + Debug>(&mut self, value: T) {
        let objects = TypeObjects::of(&T::description()).unwrap();
        let sample = encode_sample(&value, SampleFormat::default()).unwrap();
        let Some(((_, root), rest)) = objects.all(TypeObjectKind::Complete).split_last() else { return };
        for _ in 0..self.rounds {
            let mut object = root.clone();
            self.chance.mutate(&mut object);
            let hash = TypeHash::of_object(&object);
            let mut known: std::collections::BTreeMap<_, _> = rest.iter().cloned().collect();
            known.insert(hash, object.clone());
            let mut described = None;
            let largest = largest_of(|| described = TypeObjects::description(hash, &known).ok());
            assert!(largest <= justified(object.len(), 1024), "{} {largest} bytes", T::NAME);
            let Some(description) = described else { continue };
            self.described += 1;
            let _ = check_assignable(&description, &T::description(), TypeConsistency::default());
            let _ = TypeObjects::of(&description);
            let dynamic = DynamicType::new(description);
            let largest = largest_of(|| {
                let _ = dynamic.decode_sample(&sample);
            });
            // Missing members may have 65,536 values, whatever the sample is.
            assert!(largest <= justified(sample.len(), 1 << 21), "{} {largest} bytes", T::NAME);
        }
    }
}

#[test]
fn mutated_type_objects_are_described_or_refused() {
    let seed = setting("XCDR_SEED", 0x5eed);
    println!("XCDR_SEED={seed}");
    let mut objects = Objects { chance: Chance(seed | 1), rounds: setting("XCDR_ROUNDS", 60) * 2, described: 0 };
    types_0::visit(&mut objects);
    types_1::visit(&mut objects);
    assert!(objects.described > 500, "{} described", objects.described);
}

#[test]
fn recursion_ends_at_the_limit() {
    #[derive(Debug, PartialEq, DdsType)]
    #[dds(appendable)]
    struct Node {
        next: Option<Box<Node>>,
        children: Vec<Node>,
    }
    let mut node = Node { next: None, children: Vec::new() };
    for _ in 1..DEPTH_MAX / 2 {
        node = Node { next: None, children: vec![node] };
    }
    let sample = encode_sample(&node, SampleFormat::default()).unwrap();
    assert_eq!(decode_sample::<Node>(&sample).unwrap(), node);
    let deeper = Node { next: Some(Box::new(Node { next: None, children: vec![node] })), children: Vec::new() };
    let error = encode_sample(&deeper, SampleFormat::default()).unwrap_err();
    assert_eq!(error.fault(), &WriteFault::TooDeep { limit: DEPTH_MAX });
    // Each level is a size of all that follow, and a flag that a next one exists.
    let mut bytes = vec![0, 9, 0, 0];
    for level in 0..200_u32 {
        bytes.extend((8 * (200 - level) - 4).to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
    }
    let error = decode_sample::<Node>(&bytes).unwrap_err();
    assert_eq!(error.fault(), &ReadFault::TooDeep { limit: DEPTH_MAX });
    let error = DynamicType::new(Node::description()).decode_sample(&bytes).unwrap_err();
    assert_eq!(error.fault(), &ReadFault::TooDeep { limit: DEPTH_MAX });
    assert!(matches!(TypeObjects::of(&Node::description()), Err(TypeObjectError::Recursive { .. })));
}
