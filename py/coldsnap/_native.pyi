"""Bindings. Import `coldsnap` instead."""



def crc32(arg: bytes, /) -> int: ...
