"""Bodies: conversion for subscriptions that ask for another form."""
