//! Macros for the three kinds of definition in the specification: open enumerations, flag sets and records of fixed
//! size.

/// A newtype over an integer with named constants; unknown values are kept.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub struct $name:ident($int:ty) { $($(#[$cm:meta])* $const:ident = $value:expr),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$cm])* pub const $const: Self = Self($value);)*

            /// The specification's name of the value, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                $(if self.0 == $value { return Some(stringify!($const)); })*
                None
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({:#x})", stringify!($name), self.0),
                }
            }
        }

        impl $crate::cursor::Field for $name {
            const SIZE: usize = size_of::<$int>();
            #[inline]
            fn get(r: &mut $crate::cursor::Reader<'_>) -> Result<Self, $crate::WireError> {
                Ok(Self(r.get()?))
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $crate::cursor::Field::put(&self.0, out);
            }
        }
    };
}

/// A set of flags; unknown bits are kept.
macro_rules! flag_set {
    ($(#[$meta:meta])* pub struct $name:ident: $int:ty { $($(#[$($cm:tt)*])* const $const:ident = $value:expr;)* }) => {
        ::bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
            pub struct $name: $int {
                $($(#[$($cm)*])* const $const = $value;)*
                const _ = !0;
            }
        }

        impl $crate::cursor::Field for $name {
            const SIZE: usize = size_of::<$int>();
            #[inline]
            fn get(r: &mut $crate::cursor::Reader<'_>) -> Result<Self, $crate::WireError> {
                Ok(Self::from_bits_retain(r.get()?))
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $crate::cursor::Field::put(&self.bits(), out);
            }
        }
    };
}

/// A structure of fixed size: fields in wire order; `=> pad N` stands for N reserved bytes after a field.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident [$len:literal] {
        $($(#[$fm:meta])* pub $field:ident: $ty:ty $(=> pad $pad:literal)?),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fm])* pub $field: $ty,)* }

        impl $name {
            /// Encoded length in bytes.
            pub const LEN: usize = $len;

            /// Decodes the structure from the start of `bytes`; further bytes are ignored.
            ///
            /// # Errors
            /// `Truncated` if `bytes` is shorter than [`Self::LEN`].
            pub fn decode(bytes: &[u8]) -> Result<Self, $crate::WireError> {
                <Self as $crate::cursor::Field>::get(&mut $crate::cursor::Reader::new(bytes, stringify!($name)))
            }

            /// Appends the structure to `out`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                <Self as $crate::cursor::Field>::put(self, out);
            }
        }

        impl $crate::cursor::Field for $name {
            const SIZE: usize = $len;
            #[inline]
            fn get(r: &mut $crate::cursor::Reader<'_>) -> Result<Self, $crate::WireError> {
                $(let $field = r.get()?; $(r.skip($pad)?;)?)*
                Ok(Self { $($field,)* })
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::cursor::Field::put(&self.$field, out); $($crate::cursor::zeros(out, $pad);)?)*
            }
        }

        const _: () = assert!(
            $len == 0 $(+ <$ty as $crate::cursor::Field>::SIZE $(+ $pad)?)*,
            "the fields do not add up to the structure's length"
        );
    };
}

/// A message body without a variable part: StructureSize, an optional gap, then fields as in `record!`.
macro_rules! fixed_message {
    ($(#[$meta:meta])* pub struct $name:ident [$size:literal, $what:literal $(, pad $lead:literal)?] {
        $($(#[$fm:meta])* pub $field:ident: $ty:ty $(=> pad $pad:literal)?),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fm])* pub $field: $ty,)* }

        impl<'a> $crate::Decode<'a> for $name {
            #[inline]
            fn decode(msg: &'a [u8]) -> Result<Self, $crate::WireError> {
                #[allow(unused_mut, unused_variables, reason = "a body may have nothing behind StructureSize")]
                let mut r = $crate::cursor::Reader::body(msg, $what, $size)?;
                $(r.skip($lead)?;)?
                $(let $field = r.get()?; $(r.skip($pad)?;)?)*
                Ok(Self { $($field,)* })
            }
        }

        impl $crate::Encode for $name {
            #[inline]
            fn encode(&self, m: &mut $crate::MessageBuilder<'_>) -> Result<(), $crate::WireError> {
                let out = m.out();
                $crate::cursor::Field::put(&($size as u16), out);
                $($crate::cursor::zeros(out, $lead);)?
                $($crate::cursor::Field::put(&self.$field, out); $($crate::cursor::zeros(out, $pad);)?)*
                Ok(())
            }
        }

        const _: () = assert!(
            $size == 2 $(+ $lead)? $(+ <$ty as $crate::cursor::Field>::SIZE $(+ $pad)?)*,
            "the fields do not add up to StructureSize"
        );
    };
}

/// A borrowed array of a `record!`.
macro_rules! record_list {
    ($(#[$meta:meta])* pub struct $name:ident of $item:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            /// Wraps encoded elements without gaps.
            ///
            /// # Errors
            /// `Malformed` if the last one is truncated.
            pub const fn from_bytes(bytes: &'a [u8]) -> Result<Self, $crate::WireError> {
                if bytes.len().is_multiple_of($item::LEN) {
                    Ok(Self(bytes))
                } else {
                    Err($crate::WireError::malformed($what))
                }
            }

            /// The bytes.
            pub const fn as_bytes(self) -> &'a [u8] {
                self.0
            }

            /// The elements in order.
            pub fn iter(self) -> impl ExactSizeIterator<Item = $item> + Clone + 'a {
                // A chunk has exactly the length of the structure, and decoding fails only for a wrong length.
                self.0.chunks_exact($item::LEN).map(|chunk| $item::decode(chunk).unwrap_or_default())
            }

            /// Number of elements.
            pub const fn len(self) -> usize {
                self.0.len() / $item::LEN
            }

            /// Whether the list is empty.
            pub const fn is_empty(self) -> bool {
                self.0.is_empty()
            }
        }

        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }
    };
}

pub(crate) use {fixed_message, flag_set, open_enum, record, record_list};
