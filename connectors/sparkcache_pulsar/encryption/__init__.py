"""Payloads that producers have encrypted.

    options           -> Decryption   where private keys are, or else   given.py
    encrypted key     -> data key     by RSA-OAEP or by ECIES           private_keys.py
    encrypted payload -> payload      by AES-GCM, in its place          decrypting.py
    what stays so     -> a column     what it takes to decrypt it       column.py

A producer encrypts a payload, after compressing it, with a data key that it uses for
hours, and the data key for everyone who may read. Private keys are read where they are
used, by name of a file: nothing that identifies or holds rows has one in it.

Source: MessageCryptoBc of Apache Pulsar's client.
"""
